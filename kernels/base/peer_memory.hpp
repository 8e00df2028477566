// Device memory that the processes of one host map into each other: CUDA's inter-process handles.
#pragma once
#include <string>

#include "kernels/base/backend.hpp"

namespace terrace {

/// Device memory that other processes of the host can map, all zero; null where it cannot be had. Not
/// of kept memory, whose blocks go to others.
void* take_shareable(Index bytes);
void free_shareable(void* data) noexcept;
/// What another process maps it by; empty where it cannot.
std::string handle_of_shareable(void* data);
void* map_shareable(const std::string& handle);  ///< null where this device does not reach it
void unmap_shareable(void* data) noexcept;
/// A number of page-locked host memory that kernels look at, 0; null where it cannot be had.
int* take_stop();
void free_stop(int* stop) noexcept;

}  // namespace terrace
