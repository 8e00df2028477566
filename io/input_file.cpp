#include "io/input_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "io/stored.hpp"

namespace terrace::io {

namespace {

/// Length of a regular file, -1 when there is none.
Index size_of(const std::string& path, int descriptor) {
  struct stat status {};
  const int got = descriptor >= 0 ? fstat(descriptor, &status) : stat(path.c_str(), &status);
  return got == 0 && S_ISREG(status.st_mode) ? Index(status.st_size) : -1;
}

/// What an HDF5 call says that fills a buffer and returns a length.
template <class F>
std::string text_of(const F& call) {
  const ssize_t length = call(nullptr, 0);
  if (length <= 0) return {};
  std::string text(std::size_t(length) + 1, '\0');
  call(text.data(), text.size());
  text.resize(std::size_t(length));
  return text;
}

/// Chunks without filters stay out of HDF5's cache: it reports one that it holds as written.
Handle open_dataset(hid_t file, const std::string& path, const std::string& where) {
  const auto open = [&](hid_t access) {
    return Handle(
        hdf5_check(H5Dopen2(file, path.c_str(), access), "cannot open the dataset", where),
        &H5Dclose);
  };
  Handle dataset = open(H5P_DEFAULT);
  const Handle how(hdf5_check(H5Dget_create_plist(dataset), "damaged dataset", where), &H5Pclose);
  if (H5Pget_layout(how) != H5D_CHUNKED || H5Pget_nfilters(how) != 0) return dataset;
  const Handle access(H5Pcreate(H5P_DATASET_ACCESS), &H5Pclose);
  H5Pset_chunk_cache(access, 0, 0, 0);
  dataset.close();  // the first that opens it chooses the cache
  return open(access);
}

}  // namespace

std::optional<Error> InputFile::shortened() const {
  for (const Watched& w : watched) {
    const Index left = size_of(w.path, w.descriptor);
    if (left >= w.bytes) continue;
    const std::string at = w.path == location.file ? where() : where() + " in " + w.path;
    return Error(Exit::input,
                 fmt::format("the file became shorter while it was read: {} bytes, then {}; {}; "
                             "write it again, and do not change it during the run",
                             w.bytes, std::max<Index>(0, left), at));
  }
  return std::nullopt;
}

void InputFile::watch(const std::string& path, int descriptor) {
  const Index bytes = size_of(path, descriptor);
  const auto known = [&](const Watched& w) { return w.path == path && w.descriptor == descriptor; };
  if (bytes >= 0 && std::none_of(watched.begin(), watched.end(), known))
    watched.push_back({path, descriptor, bytes});
}

void InputFile::watch_files_of(const Source& source) {
  const std::string own =
      text_of([&](char* to, std::size_t size) { return H5Fget_name(source.file, to, size); });
  watch(own, descriptor_of(source.file));
  const Handle how(H5Dget_create_plist(source.dataset), &H5Pclose);
  const int raw = H5Pget_layout(how) == H5D_CONTIGUOUS ? H5Pget_external_count(how) : 0;
  for (int k = 0; k < raw; ++k) {
    char name[4096] = "";
    if (H5Pget_external(how, unsigned(k), sizeof name - 1, name, nullptr, nullptr) >= 0)
      watch(name, -1);
  }
  if (H5Pget_layout(how) == H5D_VIRTUAL) watch_parts(source, how, own);
}

namespace {

using Extents = std::vector<hsize_t>;

Extents extents_of(hid_t dataset) {
  const Handle space(H5Dget_space(dataset), &H5Sclose);
  Extents extents(std::size_t(std::max(0, H5Sget_simple_extent_ndims(space))));
  H5Sget_simple_extent_dims(space, extents.data(), nullptr);
  return extents;
}

/// Whether part k of a virtual dataset lies within it, and is just what is taken of the part's
/// dataset, within that. Selections without an end have as many elements as there are.
bool fits(hid_t how, std::size_t k, const Extents& part) {
  const Handle filled(H5Pget_virtual_vspace(how, k), &H5Sclose);
  const Handle taken(H5Pget_virtual_srcspace(how, k), &H5Sclose);
  const hssize_t wanted = H5Sget_select_npoints(filled);
  if (wanted < 0) return true;
  if (H5Sselect_valid(filled) <= 0) return false;
  hsize_t size = 1;
  for (const hsize_t extent : part) size *= extent;
  if (H5Sget_select_type(taken) == H5S_SEL_ALL) return hssize_t(size) == wanted;
  Extents first(part.size()), last(part.size());
  if (H5Sget_select_npoints(taken) != wanted ||
      H5Sget_simple_extent_ndims(taken) != int(part.size()))
    return false;
  if (wanted == 0) return true;
  if (H5Sget_select_bounds(taken, first.data(), last.data()) < 0) return false;
  return std::equal(last.begin(), last.end(), part.begin(), std::less<>());
}

}  // namespace

/// HDF5 reads fill values, or memory that nothing has set, where a virtual dataset and its parts do
/// not fit.
void InputFile::watch_parts(const Source& source, hid_t how, const std::string& own) {
  std::size_t parts = 0;
  hdf5_check(H5Pget_virtual_count(how, &parts), "damaged virtual dataset", where());
  std::string before;  // most virtual datasets name a file once, or many times in a row
  Extents part;
  for (std::size_t k = 0; k < parts; ++k) {
    const std::string name = text_of(
        [&](char* to, std::size_t size) { return H5Pget_virtual_filename(how, k, to, size); });
    const std::string dataset = text_of(
        [&](char* to, std::size_t size) { return H5Pget_virtual_dsetname(how, k, to, size); });
    if (name.empty() || (name + dataset).find('%') != std::string::npos)
      continue;  // numbered files, as many as exist
    const std::string beside = own.substr(0, own.rfind('/') + 1) + name;
    if (name + dataset != before) {
      part = extents_of_part(source, name, beside, dataset);
      if (name != ".") watch(name, -1), watch(beside, -1);
    }
    before = name + dataset;
    if (!fits(how, k, part))
      throw Error(Exit::input, "a part of the virtual dataset does not fit: " + dataset + " in " +
                                   (name == "." ? "the same file" : name) + "; " + where() +
                                   "; bring the right file back, or write the dataset again");
  }
}

std::vector<hsize_t> InputFile::extents_of_part(const Source& source, const std::string& name,
                                                const std::string& beside,
                                                const std::string& dataset) const {
  Extents extents;
  const auto holds = [&](hid_t in) {
    if (in < 0) return false;
    const Handle part(H5Dopen2(in, dataset.c_str(), H5P_DEFAULT), &H5Dclose);
    if (part.valid()) extents = extents_of(part);
    return part.valid();
  };
  if (name == "." && holds(source.file)) return extents;
  const char* const prefix = std::getenv("HDF5_VDS_PREFIX");
  for (const std::string& path : {std::string(prefix ? prefix : "") + "/" + name, beside, name})
    if (name != "." && size_of(path, -1) >= 0 && holds(open_alone(path))) return extents;
  throw Error(Exit::input,
              fmt::format("a part of the virtual dataset cannot be opened: {} in {}; {}; bring the "
                          "file back, or store the dataset as a whole",
                          dataset, name == "." ? "the same file" : name, where()));
}

void InputFile::open(const std::string& name, const std::string& path) {
  Source source;
  source.dataset = open_dataset(file, path, io::where(location, path));
  source.file = Handle(hdf5_check(H5Iget_file_id(source.dataset), "cannot open the dataset's file",
                                  io::where(location, path)),
                       [](hid_t id) { return H5Fclose(id); });  // waits for nobody
  watch_files_of(source);
  sources.emplace(name, std::move(source));
}

std::shared_ptr<InputFile> open_input(const Control& control, const Location& location,
                                      Object object) {
  auto input = std::make_shared<InputFile>();
  input->location = {location.file, object.path, location.form};
  // Every rank opens alone: the rounds of a read are our own, and no close waits for a rank that
  // failed.
  input->file = open_alone(location.file);
  collectively(control, [&] {
    hdf5_check(input->file, "cannot open the file on every rank", location.file);
    input->watch(location.file, descriptor_of(input->file));
    if (!object.group) input->open("", object.path);
    for (const auto& [name, child] : object.children)
      if (name != "shape") input->open(name, child.path);
  });
  input->object = std::move(object);
  return input;
}

std::optional<Offender> first_offender(const Control& control, const Offender& mine) {
  Offender first;
  first.row = control.reduce(mine.row, Reduce::min);
  if (first.row == Offender::none) return std::nullopt;
  const bool same_row = mine.row == first.row;
  first.column = control.reduce(same_row ? mine.column : Offender::none, Reduce::min);
  const bool is_mine = same_row && mine.column == first.column;
  // A NaN does not survive a maximum: the bits are told instead.
  static_assert(sizeof(double) == sizeof(Index));
  Index bits = 0;
  std::copy_n(reinterpret_cast<const char*>(&mine.value), sizeof bits,
              reinterpret_cast<char*>(&bits));
  bits = control.reduce(is_mine ? bits : std::numeric_limits<Index>::min(), Reduce::max);
  std::copy_n(reinterpret_cast<const char*>(&bits), sizeof bits,
              reinterpret_cast<char*>(&first.value));
  return first;
}

void refuse_not_finite(const Control& control, const Offender& mine, const std::string& where) {
  if (const auto first = first_offender(control, mine))
    fail_together(
        Exit::input,
        fmt::format("{} in the input; {} row {}, column {}; only finite numbers are accepted",
                    first->value != first->value ? "NaN" : "Inf", where, first->row,
                    first->column));
}

}  // namespace terrace::io
