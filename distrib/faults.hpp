// Faults that tests ask for: TERRACE_TEST_FAULT="RANK:PHASE[:STEP][:KIND]".
//
// In builds with tests only (TERRACE_FAULT_INJECTION); elsewhere the variable has no effect.
// Without STEP the fault comes when the phase begins, else when the phase's loop has done STEP
// steps or more. KIND, once on that rank:
//   throw   an exception on that rank alone (the default)
//   exit    the process ends with exit code 1
//   kill    it ends by SIGKILL
//   stop    it stops (SIGSTOP)
//   hang    its main thread sleeps for ever
//   wait    its main thread sleeps for TERRACE_TEST_WAIT seconds (default 3), then goes on
//   gpu     a kernel fails on its device (usage error in a build without CUDA)
//   full    from now on its writes to the output fail, as on a full disk
//   shrink  the file named by TERRACE_TEST_FILE loses its second half
// The moment of the fault is when the file named by TERRACE_TEST_STAMP appears.
#pragma once
#include "distrib/place.hpp"

namespace terrace {

/// Called wherever current_place() has changed.
void inject_fault(int rank, const Place& place);
/// The same on the rank that passed its number the last time; nothing before that.
void inject_fault_here();
/// This rank's disk is full, by a fault of kind full.
bool injected_full_disk();
/// The environment's TERRACE_TEST_...; null in builds without tests.
const char* test_setting(const char* name);

}  // namespace terrace
