#include "distrib/session.hpp"
#include "io/output.hpp"
#include "kernels/base/stream.hpp"
#include "src/program/command_line.hpp"
#include "src/program/commit.hpp"  // made by src/program/commit.cmake

namespace terrace {

std::string version_text() {
  std::string text = std::string("terrace " TERRACE_VERSION "\ncommit     ") + TERRACE_COMMIT +
                     "\nbuild      " + TERRACE_BUILD_TYPE + ", compiler " + __VERSION__ +
                     "\nMPI        " + mpi_version() + "\nHDF5       " + io::hdf5_version() +
                     "\nCUDA       ";
  if constexpr (with_cuda)
    text += cuda_build_version();
  else
    text += "none: built for CPUs alone";
  return text + "\n";
}

}  // namespace terrace
