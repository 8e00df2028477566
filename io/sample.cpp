#include "io/sample.hpp"

#include <fcntl.h>
#include <libdeflate.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <new>

#include "distrib/agree.hpp"
#include "distrib/layout.hpp"
#include "io/hdf5.hpp"
#include "io/stored.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/random.hpp"

namespace terrace::io {

const std::vector<std::string>& sample_layouts() {
  static const std::vector<std::string> names = {
      "contiguous", "chunked", "gzip",  "column-major", "band", "band-upper",
      "float32",    "int32",   "words", "bytes",        "plain"};
  return names;
}

double sample_value(Index i, Index j) { return double(random_word(11, i, j) & 0xffff); }
bool sample_bit(Index i, Index j) { return random_word(12, i, j / 64) >> (j % 64) & 1; }

namespace {

constexpr Index band_height = 1024, chunk_side = 256;

hid_t refuse_bad(hid_t id, const std::string& file) {
  if (id < 0)
    throw Error(Exit::resources, "cannot write the test file; " + file + "; " + hdf5_reason());
  return id;
}

/// Row `r` of the dataset in its file form.
void fill_row(const Sample& s, Index r, char* to) {
  const std::string& l = s.layout;
  const Index n = s.columns;
  const auto numbers = [&](auto* out, const auto& value) {
    for (Index k = 0; k < n; ++k) out[k] = std::decay_t<decltype(*out)>(value(k));
  };
  if (l == "column-major")
    numbers(reinterpret_cast<double*>(to), [&](Index k) { return sample_value(k, r); });
  else if (l == "band")
    numbers(reinterpret_cast<double*>(to), [&](Index k) { return sample_value(k + r, k); });
  else if (l == "band-upper")
    numbers(reinterpret_cast<double*>(to),
            [&](Index k) { return sample_value(k, k - (s.rows - 1 - r)); });
  else if (l == "float32")
    numbers(reinterpret_cast<float*>(to), [&](Index k) { return sample_value(r, k); });
  else if (l == "int32")
    numbers(reinterpret_cast<std::int32_t*>(to), [&](Index k) { return sample_value(r, k); });
  else if (l == "plain")
    numbers(reinterpret_cast<std::uint8_t*>(to), [&](Index k) { return sample_bit(r, k); });
  else if (l == "words" || l == "bytes")  // columns are a multiple of 64
    for (Index w = 0; w < n / 64; ++w) {
      const Word word = random_word(12, r, w);
      std::memcpy(to + 8 * w, &word, 8);
    }
  else
    numbers(reinterpret_cast<double*>(to), [&](Index k) { return sample_value(r, k); });
}

void put_text(hid_t object, const char* name, const char* value) {
  const Handle type(H5Tcopy(H5T_C_S1), &H5Tclose), space(H5Screate(H5S_SCALAR), &H5Sclose);
  H5Tset_size(type, std::strlen(value));
  const Handle a(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT), &H5Aclose);
  H5Awrite(a, type, value);
}

/// A row of chunks, deflated by all threads.
void write_deflated(hid_t dataset, const Sample& s, Index first, Index count, Index row_bytes,
                    const char* rows, const std::string& file) {
  constexpr Index bytes = chunk_side * chunk_side * 8;
  std::vector<std::vector<char>> chunks(std::size_t(ceil_div(s.columns, chunk_side)));
  parallel_for(Index(chunks.size()), [&](Index c) {
    std::vector<char> plain(std::size_t(bytes), 0), turned(std::size_t(bytes), 0);
    const Index width = std::min(chunk_side, s.columns - c * chunk_side);
    for (Index i = 0; i < count; ++i)
      std::memcpy(plain.data() + i * chunk_side * 8, rows + i * row_bytes + c * chunk_side * 8,
                  std::size_t(width) * 8);
    for (Index k = 0; k < bytes / 8; ++k)
      for (Index b = 0; b < 8; ++b)
        turned[std::size_t(b * (bytes / 8) + k)] = plain[std::size_t(k * 8 + b)];
    const std::unique_ptr<libdeflate_compressor, void (*)(libdeflate_compressor*)> fast(
        libdeflate_alloc_compressor(1), &libdeflate_free_compressor);
    if (!fast) throw std::bad_alloc();
    auto& out = chunks[std::size_t(c)];
    out.resize(libdeflate_zlib_compress_bound(fast.get(), turned.size()));
    out.resize(
        libdeflate_zlib_compress(fast.get(), turned.data(), turned.size(), out.data(), out.size()));
  });
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const hsize_t at[2] = {hsize_t(first), hsize_t(c) * chunk_side};
    refuse_bad(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, at, chunks[c].size(), chunks[c].data()),
               file);
  }
}

void write_rows(const Sample& s, const std::string& file) {
  hdf5_ready();
  const std::string& l = s.layout;
  const hid_t type = l == "float32"                 ? H5T_IEEE_F32LE
                     : l == "int32"                 ? H5T_STD_I32LE
                     : l == "words"                 ? H5T_STD_U64LE
                     : l == "bytes" || l == "plain" ? H5T_STD_U8LE
                                                    : H5T_IEEE_F64LE;
  const bool turned = l == "column-major", chunked = l == "chunked" || l == "gzip";
  const Index height = turned ? s.columns : s.rows, per_row = turned ? s.rows : s.columns;
  const hsize_t dims[2] = {hsize_t(height), hsize_t(l == "words"   ? per_row / 64
                                                    : l == "bytes" ? per_row / 8
                                                                   : per_row)};
  const Handle out(
      refuse_bad(H5Fcreate(file.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), file),
      &H5Fclose);
  const Handle space(H5Screate_simple(2, dims, nullptr), &H5Sclose);
  const Handle how(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
  H5Pset_fill_time(how, H5D_FILL_TIME_NEVER);
  const hsize_t chunk[2] = {hsize_t(std::min(chunk_side, height)),
                            hsize_t(std::min(chunk_side, per_row))};
  if (chunked) H5Pset_chunk(how, 2, chunk);
  if (l == "gzip") {
    H5Pset_shuffle(how);
    H5Pset_deflate(how, 1);
  }
  const Handle dataset(
      refuse_bad(H5Dcreate2(out, "A", type, space, H5P_DEFAULT, how, H5P_DEFAULT), file),
      &H5Dclose);
  if (turned) put_text(dataset, "order", "column-major");
  if (l == "band" || l == "band-upper") put_text(dataset, "format", "band");
  if (l == "band-upper") put_text(dataset, "uplo", "upper");
  if (l == "words") put_text(dataset, "format", "bits");
  if (l == "bytes") put_text(dataset, "bitorder", "little");
  if (l == "words" || l == "bytes") {
    const Handle one(H5Screate(H5S_SCALAR), &H5Sclose);
    const Handle a(H5Acreate2(dataset, "columns", H5T_STD_I64LE, one, H5P_DEFAULT, H5P_DEFAULT),
                   &H5Aclose);
    H5Awrite(a, H5T_NATIVE_INT64, &s.columns);
  }
  const Index row_bytes = Index(dims[1]) * Index(H5Tget_size(type));
  const Index most =
      std::max<Index>(chunk_side, (Index(16) << 20) / row_bytes / chunk_side * chunk_side);
  std::vector<char> rows(std::size_t(std::min(most, height) * row_bytes));
  for (Index first = 0; first < height; first += most) {
    const Index count = std::min(most, height - first);
    parallel_for(count, [&](Index i) { fill_row(s, first + i, rows.data() + i * row_bytes); });
    if (l == "gzip") {
      for (Index c = 0; c < count; c += chunk_side)
        write_deflated(dataset, s, first + c, std::min(chunk_side, count - c), row_bytes,
                       rows.data() + c * row_bytes, file);
      continue;
    }
    const hsize_t start[2] = {hsize_t(first), 0}, extent[2] = {hsize_t(count), dims[1]};
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, extent, nullptr);
    const Handle memory(H5Screate_simple(2, extent, nullptr), &H5Sclose);
    refuse_bad(H5Dwrite(dataset, type, memory, space, H5P_DEFAULT, rows.data()), file);
  }
}

/// open() and close().
struct Descriptor {
  int id;
  explicit Descriptor(const std::string& file) : id(open(file.c_str(), O_RDONLY)) {
    if (id < 0) throw Error(Exit::input, "cannot open the test file; " + file + "; is it there?");
  }
  ~Descriptor() { close(id); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

}  // namespace

Sample write_sample(const Control& control, const std::string& file, const std::string& layout,
                    Index bytes) {
  Sample s{layout, {file, "/A"}, 0, 0, bytes};
  const bool band = layout == "band" || layout == "band-upper";
  const double elements = double(bytes) * (layout == "words" || layout == "bytes"     ? 8
                                           : layout == "plain"                        ? 1
                                           : layout == "float32" || layout == "int32" ? 0.25
                                                                                      : 0.125);
  const auto side = Index(std::sqrt(elements)) / 64 * 64;
  s.rows = band ? band_height : std::max<Index>(64, side);
  s.columns = band ? std::max<Index>(band_height, Index(elements) / band_height) : s.rows;
  s.bytes = Index(double(s.rows) * double(s.columns) * double(bytes) / elements);
  collectively(control, [&] {
    if (control.rank() == 0) write_rows(s, file);
  });
  return s;
}

void drop_cache(const Control& control, const std::string& file) {
  collectively(control, [&] {
    if (control.local_rank() != 0) return;
    const Descriptor open(file);
    fdatasync(open.id);
    posix_fadvise(open.id, 0, 0, POSIX_FADV_DONTNEED);
  });
}

double raw_read_seconds(const Control& control, const std::string& file) {
  const Descriptor open(file);
  struct stat status {};
  fstat(open.id, &status);
  const Index size = status.st_size, part = ceil_div(size, Index(control.size()));
  const Index from = std::min(size, part * control.rank()), to = std::min(size, from + part);
  constexpr Index step = Index(8) << 20;
  std::vector<char> buffer(std::size_t(step), 1);
  return seconds_of([&] {
    for (Index at = from; at < to; at += step)
      read_at(open.id, at, std::min(step, to - at), buffer.data(), file);
  });
}

double raw_inflate_seconds(const Control& control, const Sample& sample) {
  const Handle file = open_alone(sample.location.file);
  hdf5_check(file, "cannot open the test file", sample.location.file);
  const Handle dataset(H5Dopen2(file, "/A", H5P_DEFAULT), &H5Dclose);
  constexpr Index bytes = chunk_side * chunk_side * 8, batch = 16;
  const Index across = ceil_div(sample.columns, chunk_side);
  const Index all = across * ceil_div(sample.rows, chunk_side);
  std::vector<std::vector<char>> raw(batch), plain(batch, std::vector<char>(std::size_t(bytes)));
  return seconds_of([&] {
    const Index part = ceil_div(all, Index(control.size())), from = part * control.rank();
    for (Index at = from; at < std::min(all, from + part); at += batch) {
      const Index count = std::min(batch, std::min(all, from + part) - at);
      for (Index k = 0; k < count; ++k) {
        const hsize_t place[2] = {hsize_t((at + k) / across * chunk_side),
                                  hsize_t((at + k) % across * chunk_side)};
        hsize_t size = 0;
        std::uint32_t mask = 0;
        H5Dget_chunk_storage_size(dataset, place, &size);
        raw[std::size_t(k)].resize(size);
        H5Dread_chunk(dataset, H5P_DEFAULT, place, &mask, raw[std::size_t(k)].data());
      }
      parallel_for(count,
                   [&](Index k) { (void)inflated(raw[std::size_t(k)], plain[std::size_t(k)]); });
    }
  });
}

}  // namespace terrace::io
