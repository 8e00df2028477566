// A file of all ranks of a test.
#pragma once
#include <unistd.h>

#include <cstdio>

#include "library.hpp"

namespace library {

/// Its name, the same on all ranks; the file is gone at the end.
class FileName {
 public:
  explicit FileName(const std::string& stem) {
    int id = getpid();
    MPI_Bcast(&id, 1, MPI_INT, 0, MPI_COMM_WORLD);
    name_ = stem + "_" + std::to_string(id) + ".h5";
  }
  ~FileName() {
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 0) std::remove(name_.c_str());
  }
  FileName(const FileName&) = delete;
  FileName& operator=(const FileName&) = delete;
  const std::string& operator*() const { return name_; }
  std::string at(const char* path) const { return name_ + ":" + path; }

 private:
  std::string name_;
};

}  // namespace library
