// What stands in an HDF5 file: bytes choose objects, types, shapes, attributes and links; the
// library writes them, and every reader looks. (Damaged bytes of HDF5's own structures:
// tests/program/fuzz.py.)
#include <hdf5.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <vector>

#include "io/input.hpp"
#include "io/inspect.hpp"
#include "io/output.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace terrace;

namespace {

struct Bytes {
  const std::uint8_t* data;
  std::size_t left;
  unsigned next(unsigned below) {
    if (left == 0) return 0;
    --left;
    return *data++ % below;
  }
};

hid_t type_of(Bytes& bytes) {
  static const std::array<hid_t, 10> plain = {
      H5T_IEEE_F64LE, H5T_IEEE_F32BE, H5T_STD_U64LE, H5T_STD_I64BE, H5T_STD_I32LE,
      H5T_STD_U8LE,   H5T_STD_I8LE,   H5T_STD_U16BE, H5T_STD_B32LE, H5T_STD_REF_OBJ};
  const unsigned which = bytes.next(14);
  if (which < plain.size()) {
    const hid_t type = H5Tcopy(plain[which]);
    if (which > 1 && which < 8 && bytes.next(8) == 0) H5Tset_precision(type, 1 + bytes.next(8));
    return type;
  }
  if (which == 10) {
    const hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, bytes.next(2) ? H5T_VARIABLE : 1 + bytes.next(9));
    return text;
  }
  if (which == 11) {
    const hid_t pair = H5Tcreate(H5T_COMPOUND, 16);
    H5Tinsert(pair, "re", 0, H5T_NATIVE_DOUBLE);
    H5Tinsert(pair, "im", 8, H5T_NATIVE_DOUBLE);
    return pair;
  }
  if (which == 12) {
    const hid_t truth = H5Tenum_create(H5T_NATIVE_INT8);
    std::int8_t value = 0;
    H5Tenum_insert(truth, "FALSE", &value);
    value = 1;
    H5Tenum_insert(truth, "TRUE", &value);
    return truth;
  }
  const hsize_t two = 2;
  return H5Tarray_create2(H5T_NATIVE_DOUBLE, 1, &two);
}

hid_t space_of(Bytes& bytes) {
  const unsigned rank = bytes.next(5);
  if (rank == 4) return H5Screate(H5S_NULL);
  hsize_t extents[3];
  for (hsize_t& e : extents)
    e = bytes.next(16) == 0 ? hsize_t(1) << (20 + bytes.next(40)) : bytes.next(6);
  return rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(int(rank), extents, nullptr);
}

void attributes(Bytes& bytes, hid_t object) {
  static const char* const names[] = {"format",       "uplo",         "order",    "columns",
                                      "bitorder",     "shape",        "symmetry", "encoding-type",
                                      "MATLAB_class", "MATLAB_sparse"};
  static const char* const texts[] = {"band",       "bits",         "dense",  "lower",
                                      "upper",      "column-major", "big",    "little",
                                      "csr_matrix", "csc_matrix",   "double", ""};
  for (unsigned count = bytes.next(5); count > 0; --count) {
    const char* const name = names[bytes.next(10)];
    if (bytes.next(2) == 0) {  // a text
      const char* const text = texts[bytes.next(12)];
      const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
      H5Tset_size(type, std::strlen(text) + bytes.next(2) + 1);
      std::vector<char> padded(64, '\0');
      std::memcpy(padded.data(), text, std::strlen(text));
      const hid_t made = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
      if (made >= 0) H5Awrite(made, type, padded.data()), H5Aclose(made);
      H5Sclose(space), H5Tclose(type);
      continue;
    }
    const hid_t type = type_of(bytes),
                space = bytes.next(2) ? H5Screate(H5S_SCALAR) : space_of(bytes);
    const hssize_t points = H5Sget_simple_extent_npoints(space);
    const hid_t made =
        points < 64 ? H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT) : -1;
    if (made >= 0) {
      std::vector<std::uint8_t> values(std::size_t(std::max<hssize_t>(1, points)) * 64, 0);
      if (H5Tis_variable_str(type) <= 0 && H5Tget_class(type) != H5T_REFERENCE) {
        for (std::uint8_t& v : values) v = std::uint8_t(bytes.next(256));
        H5Awrite(made, type, values.data());
      }
      H5Aclose(made);
    }
    H5Sclose(space), H5Tclose(type);
  }
}

void objects(Bytes& bytes, hid_t parent, int depth) {
  static const char* const names[] = {"A",   "b",   "data", "indices", "indptr", "shape",
                                      "row", "col", "ir",   "jc",      "terrace"};
  for (unsigned count = 1 + bytes.next(5); count > 0; --count) {
    const char* const name = names[bytes.next(11)];
    const unsigned what = bytes.next(12);
    if (what == 0) {
      H5Lcreate_soft(names[bytes.next(11)], parent, name, H5P_DEFAULT, H5P_DEFAULT);
    } else if (what == 1) {
      H5Lcreate_external("nowhere.h5", "/A", parent, name, H5P_DEFAULT, H5P_DEFAULT);
    } else if (what <= 4 && depth < 3) {
      const hid_t group = H5Gcreate2(parent, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
      if (group < 0) continue;
      attributes(bytes, group);
      objects(bytes, group, depth + 1);
      H5Gclose(group);
    } else {
      const hid_t type = type_of(bytes), space = space_of(bytes),
                  how = H5Pcreate(H5P_DATASET_CREATE);
      if (bytes.next(2)) {
        const hsize_t chunk[3] = {1 + bytes.next(4), 1 + bytes.next(4), 1 + bytes.next(4)};
        if (const int rank = H5Sget_simple_extent_ndims(space); rank > 0)
          H5Pset_chunk(how, rank, chunk);
      }
      const hid_t made = H5Dcreate2(parent, name, type, space, H5P_DEFAULT, how, H5P_DEFAULT);
      if (made >= 0) attributes(bytes, made), H5Dclose(made);
      H5Pclose(how), H5Sclose(space), H5Tclose(type);
    }
  }
}

const std::string& folder() {
  static const std::string& made = *new std::string([] {  // outlives what runs at the exit
    std::string name = std::filesystem::exists("/dev/shm") ? "/dev/shm/terrace-fuzz-XXXXXX"
                                                           : "/tmp/terrace-fuzz-XXXXXX";
    if (!mkdtemp(name.data())) std::abort();
    std::atexit([] { std::filesystem::remove_all(folder()); });
    return name;
  }());
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Control& control = fuzz::world();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  const std::string name = folder() + "/in.h5";
  Bytes bytes{data, size};
  const hid_t file = H5Fcreate(name.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  if (file < 0) return 0;
  objects(bytes, file, 0);
  H5Fclose(file);
  static const char* const paths[] = {"", "/A", "/b", "/A/data", "/"};
  const io::Location at{name, paths[size > 0 ? data[0] % 5 : 0]};
  for (const io::Kind kind : {io::Kind::dense, io::Kind::band, io::Kind::sparse, io::Kind::bits})
    fuzz::contract([&] {
      (void)io::find_object(control, at, kind,
                            size % 2 == 0 ? io::Role::right_hand_side : io::Role::matrix);
    });
  fuzz::contract([&] { (void)io::kind_of(control, at); });
  (void)io::is_group(control, at);
  // One of the readers looks further: opening files takes longest.
  const unsigned reader = size > 1 ? data[1] % 5 : 0;
  fuzz::contract([&] {
    if (reader == 0) (void)io::open_dense(control, at);
    if (reader == 1) (void)io::open_dense(control, at, io::Role::right_hand_side);
    if (reader == 2) (void)io::open_band(control, at);
    if (reader == 3) (void)io::open_sparse(control, at);
    if (reader == 4) (void)io::open_bits(control, at);
  });
  return 0;
}
