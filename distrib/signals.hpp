// Signals that ask for a checkpoint.
#pragma once
#include <string>

namespace terrace {

/// From now on SIGUSR1 asks for a checkpoint, SIGUSR2 and SIGTERM for a checkpoint and the end; a
/// second one that asks for the end ends this process at once (exit code 128 + its number). Signals
/// that are ignored stay so.
void watch_signals();
/// Undoes one call of it; the last gives the signals their former effect.
void ignore_signals();

struct SignalRequest {
  bool checkpoint = false, stop = false;
};
/// What was asked for since the last call.
SignalRequest take_signal_request();
/// "SIGUSR2": the last signal that asked for the end, or empty.
std::string stopping_signal();

}  // namespace terrace
