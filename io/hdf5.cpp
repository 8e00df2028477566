#include "io/hdf5.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "distrib/mpi.hpp"
#include "io/input.hpp"
#include "io/output.hpp"

namespace terrace::io {

void hdf5_ready() {
  static const bool ready = [] {
    setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);  // read-only and network folders refuse locks
    H5dont_atexit();                              // a rank that leaves alone must not wait in HDF5
    signal(SIGXFSZ, SIG_IGN);  // a file size limit is then an error of the write, as a full disk is
    H5open();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    return true;
  }();
  (void)ready;
}

std::string hdf5_reason() {
  std::string reason;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* entry, void* data) -> herr_t {
        auto& text = *static_cast<std::string*>(data);
        if (text.empty() && entry->desc) text = entry->desc;
        return 0;
      },
      &reason);
  for (char& c : reason)
    if (c == '\n' || c == ';') c = ',';
  if (reason.empty()) return "write it again (HDF5 gives no reason)";
  std::string text = "HDF5 says: ";
  text += reason;
  if (reason.find("version number") == std::string::npos) return text;
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format(
      "{} (a newer HDF5 may have written it, this is {}.{}.{}: write it with libver=(\"earliest\", "
      "\"v110\"))",
      text, major, minor, release);
}

hid_t hdf5_check(hid_t id, const std::string& what, const std::string& where) {
  if (id < 0) throw Error(Exit::input, what + "; " + where + "; " + hdf5_reason());
  return id;
}

Index stripe_bytes() {
  const char* const text = std::getenv("TERRACE_STRIPE_BYTES");
  return text ? std::clamp<Index>(std::atoll(text), 0, Index(1) << 30) : 0;
}

namespace {
Handle parallel_access(const Control& control) {
  Handle access(H5Pcreate(H5P_FILE_ACCESS), &H5Pclose);
  H5Pset_fapl_mpio(access, mpi_comm(control), MPI_INFO_NULL);
  if (const Index stripe = stripe_bytes(); stripe > 0)
    H5Pset_alignment(access, hsize_t(stripe), hsize_t(stripe));
  return access;
}
}  // namespace

Handle open_alone(const std::string& name) {
  hdf5_ready();
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), &H5Pclose);
  // Whole chunks of a compressed input stay in the cache while one piece is read.
  H5Pset_cache(access, 0, 521, 32 << 20, 0.75);
  // Another address than &H5Fclose: this close waits for nobody.
  return {H5Fopen(name.c_str(), H5F_ACC_RDONLY, access), [](hid_t id) { return H5Fclose(id); }};
}

Handle open_parallel(const Control& control, const std::string& name, bool write) {
  hdf5_ready();
  Handle access = parallel_access(control);
  if (write) H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_LATEST);
  return {H5Fopen(name.c_str(), write ? H5F_ACC_RDWR : H5F_ACC_RDONLY, access), &H5Fclose};
}

Handle create_parallel(const Control& control, const std::string& name) {
  hdf5_ready();
  Handle access = parallel_access(control);
  // Version 1.8 and later checksum every object header.
  H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_LATEST);
  Handle create(H5Pcreate(H5P_FILE_CREATE), &H5Pclose);
  H5Pset_attr_phase_change(create, 1000, 0);
  H5Pset_obj_track_times(create, false);  // the ranks' clocks differ
  return {H5Fcreate(name.c_str(), H5F_ACC_TRUNC, create, access), &H5Fclose};
}

Handle transfer(bool collective) {
  Handle properties(H5Pcreate(H5P_DATASET_XFER), &H5Pclose);
  H5Pset_dxpl_mpio(properties, collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT);
  return properties;
}

Index piece_bytes() {
  static const Index bytes = [] {
    const char* text = std::getenv("TERRACE_IO_PIECE_BYTES");
    const long long value = text ? std::atoll(text) : 0;
    return value > 0 ? std::min(Index(value), Index(1) << 30) : Index(16) << 20;
  }();
  return bytes;
}

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release) +
         " parallel (header " + std::to_string(H5_VERS_MAJOR) + "." +
         std::to_string(H5_VERS_MINOR) + "." + std::to_string(H5_VERS_RELEASE) + ")";
}

std::string hdf5_mismatch() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  if (major == H5_VERS_MAJOR && minor == H5_VERS_MINOR && release == H5_VERS_RELEASE) return {};
  return "HDF5 differs between its header and its library: " + hdf5_version();
}

}  // namespace terrace::io
