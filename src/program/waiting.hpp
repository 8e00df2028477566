// How this process waits: where ranks share cores, and for its launcher. It stands here and not in
// distrib: a library must not replace functions of libc in other people's programs.
#pragma once

namespace terrace {

/// Where a launcher says that a host has more ranks than cores, or the user asks for it
/// (OMPI_MCA_mpi_yield_when_idle), Open MPI calls sched_yield() while it waits. The kernel may well
/// run the same rank again, or give the core away for a whole time slice of milliseconds. From this
/// call on the program sleeps 20 microseconds instead, and the other ranks have the core: 2,000
/// barriers of three ranks on two busy cores take 0.3 s in place of 9. To be called before MPI
/// starts; does nothing where every rank has a core.
void wait_asleep_where_crowded();

// Linked in, this also replaces connect(): TCP sockets get TCP_NODELAY. Ranks talk to their launcher
// (PMIx) in small messages over such a socket, several without an answer between them, and the second
// waited for a delayed acknowledgement of the first: 40 ms in MPI_Finalize, at times as much in
// MPI_Init.

}  // namespace terrace
