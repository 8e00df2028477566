// A file of every input form, written serially by rank 0 with the plain HDF5 API.
#pragma once
#include <hdf5.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/base/error.hpp"
#include "tests/support/test.hpp"

namespace terrace::test {

/// A folder of this test run, the same on all ranks; removed at the end.
class Folder {
 public:
  explicit Folder(const std::filesystem::path& in = std::filesystem::temp_directory_path()) {
    std::string name = in / "terrace-io-XXXXXX";
    if (world().rank() == 0 && !mkdtemp(name.data())) name.clear();
    path_ = world().broadcast(name, 0);
  }
  ~Folder() {
    world().barrier();
    std::error_code ignored;
    if (world().rank() == 0) std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  /// Names in the folder, sorted.
  [[nodiscard]] std::vector<std::string> names() const {
    world().barrier();
    std::vector<std::string> result;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      result.push_back(entry.path().filename());
    std::sort(result.begin(), result.end());
    world().barrier();
    return result;
  }

 private:
  std::string path_;
};

/// Serial writer; used inside `if (world().rank() == 0)`.
class File {
 public:
  explicit File(const std::string& name)
      : id_(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {}
  ~File() { H5Fclose(id_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void group(const std::string& path) {
    H5Gclose(H5Gcreate2(id_, path.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  }
  /// `stored`: type in the file; T's native type in memory. chunk > 0: chunked rows, deflated.
  template <class T>
  void dataset(const std::string& path, std::vector<hsize_t> dims, const std::vector<T>& data,
               hid_t stored = -1, hsize_t chunk = 0) {
    const hid_t space = H5Screate_simple(int(dims.size()), dims.data(), nullptr);
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    if (chunk > 0) {
      std::vector<hsize_t> chunks = dims;
      for (hsize_t& c : chunks) c = std::max<hsize_t>(1, std::min(c, chunk));
      H5Pset_chunk(properties, int(chunks.size()), chunks.data());
      H5Pset_deflate(properties, 1);
    }
    const hid_t id = H5Dcreate2(id_, path.c_str(), stored < 0 ? native<T>() : stored, space,
                                H5P_DEFAULT, properties, H5P_DEFAULT);
    if (!data.empty()) H5Dwrite(id, native<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data());
    H5Dclose(id);
    H5Pclose(properties);
    H5Sclose(space);
  }
  void text(const std::string& path, const std::string& name, const std::string& value,
            bool variable = true) {
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, variable ? H5T_VARIABLE : value.size());
    const char* pointer = value.c_str();
    put(path, name, type, variable ? static_cast<const void*>(&pointer) : pointer, 0);
    H5Tclose(type);
  }
  /// `count` 0: a scalar, else 1-D.
  void whole(const std::string& path, const std::string& name, std::vector<long long> values,
             hsize_t count = 0, hid_t stored = -1) {
    put(path, name, H5T_NATIVE_LLONG, values.data(), count, stored);
  }

  template <class T>
  static hid_t native() {
    if (std::is_same_v<T, double>) return H5T_NATIVE_DOUBLE;
    if (std::is_same_v<T, Word>) return H5T_NATIVE_UINT64;
    if (std::is_same_v<T, std::uint8_t>) return H5T_NATIVE_UINT8;
    if (std::is_same_v<T, std::int8_t>) return H5T_NATIVE_INT8;
    return H5T_NATIVE_INT64;
  }

 private:
  void put(const std::string& path, const std::string& name, hid_t type, const void* data,
           hsize_t count, hid_t stored = -1) {
    const hid_t object = H5Oopen(id_, path.c_str(), H5P_DEFAULT);
    const hid_t space = count ? H5Screate_simple(1, &count, nullptr) : H5Screate(H5S_SCALAR);
    const hid_t id = H5Acreate2(object, name.c_str(), stored < 0 ? type : stored, space,
                                H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(id, type, data);
    H5Aclose(id);
    H5Sclose(space);
    H5Oclose(object);
  }
  hid_t id_;
};

/// Ranges of this rank that cover [0, extent) over the ranks; `kind` 0 contiguous, 1 cards of 1,
/// 2 cards of 3, 3 everything on the last rank, 4 everything everywhere, 5 irregular.
inline std::vector<Range> some_ranges(Index extent, int kind) {
  const int rank = world().rank(), size = world().size();
  switch (kind) {
    case 0:
      return contiguous(extent, size).ranges(rank);
    case 1:
      return BlockCyclic{extent, 1, size}.ranges(rank);
    case 2:
      return BlockCyclic{extent, 3, size}.ranges(rank);
    case 3:
      return rank == size - 1 ? std::vector<Range>{{0, extent}} : std::vector<Range>{};
    case 4:
      return {{0, extent}};
    default: {
      std::vector<Range> result;
      Index width = 1;
      int owner = 0;
      for (Index i = 0; i < extent; i += width, owner = (owner + 1) % size) {
        width = 1 + (i * 7) % 5;
        if (owner == rank) result.push_back({i, std::min(width, extent - i)});
      }
      if (result.size() > 1) std::swap(result.front(), result.back());
      return result;
    }
  }
}

/// The error's message, "" when `work` does not throw an agreed Error with `code`.
template <class F>
std::string agreed_error(Exit code, F&& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.agreed() && e.code() == code ? e.what() : std::string("other: ") + e.what();
  }
  return "no error";
}
inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace terrace::test
