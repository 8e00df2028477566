// What every run with a device waits for, begun in threads beside the caller. What fails there fails
// again where it is used.
//
// CUDA reads the environment while it starts, and MPI_Init changes it. Who prepares before that needs
// a setenv() that leaves readers alone, as the program's is (src/program/environment.cpp).
#pragma once
#include <vector>

namespace terrace {

/// This process uses the first device alone, so CUDA starts that one alone: each other one on the
/// host takes 0.2 s more. Before all else here; it sets CUDA_VISIBLE_DEVICES.
void see_one_device();
/// CUDA's start, 0.1 s, and where the device is `certain`, and the only one that is seen, its
/// context, 0.1 s more; with `products` cuBLAS is loaded.
void prepare_device(bool certain, bool products);
/// A first product of cuBLAS on the bound device.
void prepare_products();
/// Kernels of the files that belong to `families` (TERRACE_PREPARED), on the bound device. CUDA loads each
/// at its first launch otherwise, which takes 0.1 ms.
void prepare_kernels(const std::vector<const char*>& families);
/// Waits for all, before the libraries end with the program.
void end_preparations();

}  // namespace terrace
