#include "io/volume.hpp"

#include <atomic>

namespace terrace::io {

namespace {
std::atomic<Index> all_read{0}, all_written{0};
}

Volume volume() { return {all_read, all_written}; }
void count_volume(Index read, Index written) {
  all_read += read;
  all_written += written;
}

}  // namespace terrace::io
