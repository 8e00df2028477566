#include "io/stored.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>

namespace terrace::io {

std::optional<Element> element_of(hid_t type) {
  using Form = Element::Form;
  const struct {
    hid_t little, big;
    Form form;
    Index bytes;
  } known[] = {{H5T_IEEE_F64LE, H5T_IEEE_F64BE, Form::f64, 8},
               {H5T_IEEE_F32LE, H5T_IEEE_F32BE, Form::f32, 4},
               {H5T_STD_I8LE, H5T_STD_I8BE, Form::i8, 1},
               {H5T_STD_I16LE, H5T_STD_I16BE, Form::i16, 2},
               {H5T_STD_I32LE, H5T_STD_I32BE, Form::i32, 4},
               {H5T_STD_I64LE, H5T_STD_I64BE, Form::i64, 8},
               {H5T_STD_U8LE, H5T_STD_U8BE, Form::u8, 1},
               {H5T_STD_U16LE, H5T_STD_U16BE, Form::u16, 2},
               {H5T_STD_U32LE, H5T_STD_U32BE, Form::u32, 4},
               {H5T_STD_U64LE, H5T_STD_U64BE, Form::u64, 8}};
  constexpr bool here_big = std::endian::native == std::endian::big;
  if (H5Tget_class(type) == H5T_ENUM) {
    const Handle whole(H5Tget_super(type), &H5Tclose);
    return whole.valid() ? element_of(whole) : std::nullopt;
  }
  for (const auto& k : known) {
    const bool little = H5Tequal(type, k.little) > 0;
    if (!little && H5Tequal(type, k.big) <= 0) continue;
    return Element{k.form, k.bytes > 1 && little == here_big, k.bytes};
  }
  return std::nullopt;
}

namespace {

std::uint8_t turned(std::uint8_t x) { return x; }
std::uint16_t turned(std::uint16_t x) { return __builtin_bswap16(x); }
std::uint32_t turned(std::uint32_t x) { return __builtin_bswap32(x); }
std::uint64_t turned(std::uint64_t x) { return __builtin_bswap64(x); }

/// Bits: unsigned integer as wide as S.
template <class S, class Bits, class T>
void cast(bool swapped, const char* from, T* to, Index count) {
  const auto value = [](Bits bits) {
    const S s = std::bit_cast<S>(bits);
    if constexpr (std::is_same_v<S, std::uint64_t> && std::is_same_v<T, Index>)
      return T(std::min<std::uint64_t>(s, std::uint64_t(std::numeric_limits<Index>::max())));
    else
      return T(s);
  };
  Bits bits;
  if (swapped) {
    for (Index i = 0; i < count; ++i) {
      std::memcpy(&bits, from + i * Index(sizeof bits), sizeof bits);
      to[i] = value(turned(bits));
    }
  } else {
    for (Index i = 0; i < count; ++i) {
      std::memcpy(&bits, from + i * Index(sizeof bits), sizeof bits);
      to[i] = value(bits);
    }
  }
}

template <class T>
void convert(Element e, const char* from, T* to, Index count) {
  using Form = Element::Form;
  switch (e.form) {
    case Form::f64:
      if constexpr (std::is_same_v<T, double>) {
        if (!e.swapped && static_cast<const void*>(from) != to)
          std::memcpy(to, from, std::size_t(count) * 8);
        if (e.swapped) cast<double, std::uint64_t>(true, from, to, count);
      }
      return;
    case Form::f32:
      if constexpr (std::is_same_v<T, double>)
        cast<float, std::uint32_t>(e.swapped, from, to, count);
      return;
    case Form::i8:
      return cast<std::int8_t, std::uint8_t>(false, from, to, count);
    case Form::i16:
      return cast<std::int16_t, std::uint16_t>(e.swapped, from, to, count);
    case Form::i32:
      return cast<std::int32_t, std::uint32_t>(e.swapped, from, to, count);
    case Form::i64:
      return cast<std::int64_t, std::uint64_t>(e.swapped, from, to, count);
    case Form::u8:
      return cast<std::uint8_t, std::uint8_t>(false, from, to, count);
    case Form::u16:
      return cast<std::uint16_t, std::uint16_t>(e.swapped, from, to, count);
    case Form::u32:
      return cast<std::uint32_t, std::uint32_t>(e.swapped, from, to, count);
    case Form::u64:
      return cast<std::uint64_t, std::uint64_t>(e.swapped, from, to, count);
  }
}

Index product(const std::vector<Index>& dims, Index bytes, const std::string& where) {
  for (const Index d : dims)
    if (__builtin_mul_overflow(bytes, d, &bytes))
      throw Error(Exit::input, "impossible dimensions; " + where + "; the file is damaged");
  return bytes;
}

}  // namespace

void to_doubles(Element e, const char* from, double* to, Index count) {
  convert(e, from, to, count);
}
void to_indices(Element e, const char* from, Index* to, Index count) {
  convert(e, from, to, count);
}
void to_words(Element e, const char* from, Word* to, Index count) {
  if (e.swapped)
    cast<std::uint64_t, std::uint64_t>(true, from, to, count);
  else if (static_cast<const void*>(from) != to)
    std::memcpy(to, from, std::size_t(count) * 8);
}

int descriptor_of(hid_t file) {
  const Handle access(H5Fget_access_plist(file), &H5Pclose);
  void* descriptor = nullptr;
  if (!access.valid() || H5Pget_driver(access) != H5FD_SEC2 ||
      H5Fget_vfd_handle(file, H5P_DEFAULT, &descriptor) < 0 || descriptor == nullptr)
    return -1;
  return *static_cast<int*>(descriptor);
}

namespace {

Error ends_early(const std::string& where) {
  return Error(Exit::input, "the data end before the dataset does; " + where +
                                "; the file is damaged or truncated: write it again");
}

/// Where the file ends by its own account, in bytes of the disk's file. HDF5 gives zeros, or what its
/// buffers hold, for what lies behind.
Index end_of(hid_t file) {
  const Handle creation(H5Fget_create_plist(file), &H5Pclose);
  hsize_t userblock = 0;
  haddr_t end = 0;
  if (!creation.valid() || H5Pget_userblock(creation, &userblock) < 0 || H5Fget_eoa(file, &end) < 0)
    return 0;
  return Index(std::min<haddr_t>(end, haddr_t(1) << 62)) + Index(userblock);
}

/// Whether the filters are ours: shuffle by elements, Fletcher's sums, and at most one deflate.
bool know_filters(hid_t properties, Index element_bytes, std::vector<Filter>& ours) {
  const int filters = H5Pget_nfilters(properties);
  for (int k = 0; k < filters; ++k) {
    unsigned flags = 0, value[1] = {0};
    std::size_t values = 1;
    switch (H5Pget_filter2(properties, unsigned(k), &flags, &values, value, 0, nullptr, nullptr)) {
      case H5Z_FILTER_SHUFFLE:
        if (values != 1 || Index(value[0]) != element_bytes) return false;
        ours.push_back(Filter::shuffle);
        break;
      case H5Z_FILTER_FLETCHER32:
        ours.push_back(Filter::fletcher);
        break;
      case H5Z_FILTER_DEFLATE:
        ours.push_back(Filter::deflate);
        break;
      default:
        return false;
    }
  }
  return filters >= 0 && std::count(ours.begin(), ours.end(), Filter::deflate) <= 1;
}

/// HDF5 1.10 believes the sizes that stand in the dataset's header, and reads out of bounds.
void require_chunk_sizes(hid_t dataset, hid_t properties, Index element_bytes, Index chunk_bytes,
                         const std::string& where) {
  const auto damaged = [&](const char* what) {
    return Error(Exit::input,
                 std::string(what) + "; " + where + "; the file is damaged: write it again");
  };
  Index added = 0;  // by the filters to a chunk
  bool known = true;
  for (int k = 0; k < H5Pget_nfilters(properties); ++k) {
    unsigned flags = 0, value[1] = {0};
    std::size_t values = 1;
    const H5Z_filter_t filter =
        H5Pget_filter2(properties, unsigned(k), &flags, &values, value, 0, nullptr, nullptr);
    if (filter == H5Z_FILTER_SHUFFLE && values == 1 && Index(value[0]) != element_bytes)
      throw damaged("the shuffled elements have the wrong size");
    known = known && (filter == H5Z_FILTER_SHUFFLE || filter == H5Z_FILTER_FLETCHER32);
    added += filter == H5Z_FILTER_FLETCHER32 ? 4 : 0;
  }
  hsize_t chunks = 0;
  const Handle space(H5Dget_space(dataset), &H5Sclose);
  if (!known) return;
  if (H5Dget_num_chunks(dataset, space, &chunks) < 0) throw damaged("the chunks cannot be counted");
  // A chunk may lack a filter's bytes, and its mark says so.
  const hsize_t bytes = H5Dget_storage_size(dataset);
  if (bytes < chunks * hsize_t(chunk_bytes) || bytes > chunks * hsize_t(chunk_bytes + added))
    throw damaged("a chunk has the wrong size");
}

}  // namespace

Stored where_stored(hid_t file, hid_t dataset, const Object& object, const std::string& where) {
  Stored stored;
  const Index bytes = product(object.dims, std::max<Index>(1, object.bytes), where);
  const Handle properties(hdf5_check(H5Dget_create_plist(dataset), "damaged dataset", where),
                          &H5Pclose);
  // HDF5 leaves memory unset for chunks that are not there, where it does not know the time.
  H5D_fill_time_t filled = H5D_FILL_TIME_ERROR;
  if (H5Pget_fill_time(properties, &filled) < 0 || filled < H5D_FILL_TIME_ALLOC ||
      filled > H5D_FILL_TIME_IFSET)
    throw Error(Exit::input, "unknown time to fill what is not written; " + where +
                                 "; the file is damaged: write it again");
  const H5D_layout_t layout = H5Pget_layout(properties);
  if (layout == H5D_CONTIGUOUS && H5Pget_external_count(properties) == 0 &&
      H5Pget_nfilters(properties) == 0) {
    H5D_space_status_t status = H5D_SPACE_STATUS_NOT_ALLOCATED;
    H5Dget_space_status(dataset, &status);
    const haddr_t offset = H5Dget_offset(dataset);  // in the file, its user block counted
    const int descriptor = descriptor_of(file);
    if (status != H5D_SPACE_STATUS_ALLOCATED || offset == HADDR_UNDEF || descriptor < 0)
      return stored;  // never written; another driver
    stored.descriptor = descriptor;
    stored.offset = Index(offset);
    struct stat file_now {};
    if (offset > (haddr_t(1) << 62) || Index(H5Dget_storage_size(dataset)) != bytes ||
        fstat(descriptor, &file_now) != 0 ||
        stored.offset + bytes > std::min<Index>(file_now.st_size, end_of(file)))
      throw ends_early(where);
    stored.way = Stored::Way::direct;
    return stored;
  }
  // Within the dataset's header; HDF5 1.10 copies the bytes of the extents whatever the header
  // holds.
  if (layout == H5D_COMPACT && Index(H5Dget_storage_size(dataset)) != bytes)
    throw ends_early(where);
  if (layout != H5D_CHUNKED) return stored;
  hsize_t chunk[2] = {1, 1};
  if (object.dims.empty() || object.dims.size() > 2) return stored;
  if (H5Pget_chunk(properties, 2, chunk) != int(object.dims.size()))  // HDF5 reads on and on
    throw Error(Exit::input, "the chunks have other dimensions than the dataset; " + where +
                                 "; the file is damaged: write it again");
  for (int axis = 0; axis < 2; ++axis) {
    if (chunk[axis] == 0 || chunk[axis] > (hsize_t(1) << 32)) return stored;
    stored.chunk[axis] = Index(chunk[axis]);
  }
  const Index chunk_bytes = product({stored.chunk[0], stored.chunk[1]}, object.bytes, where);
  if (chunk_bytes > (Index(1) << 32)) return stored;  // HDF5's own limit
  require_chunk_sizes(dataset, properties, object.bytes, chunk_bytes, where);
  // Chunks at the edges may be left unfiltered without a mark.
  unsigned edges = 0;
  if (H5Pget_chunk_opts(properties, &edges) < 0 || edges != 0 ||
      !know_filters(properties, object.bytes, stored.filters))
    return stored;
  stored.way = Stored::Way::filtered;
  return stored;
}

Error unreadable(hid_t dataset, const std::string& where) {
  const std::string reason = hdf5_reason();
  const Handle properties(H5Dget_create_plist(dataset), &H5Pclose);
  const int filters = H5Pget_layout(properties) == H5D_CHUNKED ? H5Pget_nfilters(properties) : 0;
  for (int k = 0; k < filters; ++k) {
    unsigned flags = 0;
    std::size_t values = 0;
    char name[64] = "";
    const H5Z_filter_t filter = H5Pget_filter2(properties, unsigned(k), &flags, &values, nullptr,
                                               sizeof name - 1, name, nullptr);
    if (filter >= 0 && H5Zfilter_avail(filter) <= 0)
      return Error(Exit::input, "filter '" + std::string(name) + "' (number " +
                                    std::to_string(filter) + ") is not in this HDF5; " + where +
                                    "; write it with gzip, or set HDF5_PLUGIN_PATH");
  }
  return Error(Exit::input, "cannot read the data; " + where + "; " + reason);
}

void read_at(int descriptor, Index offset, Index bytes, char* to, const std::string& where) {
  while (bytes > 0) {
    const ssize_t got =
        pread(descriptor, to, std::size_t(std::min<Index>(bytes, Index(1) << 30)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw Error(Exit::input, std::string("cannot read the data: ") + std::strerror(errno) + "; " +
                                   where + "; check the disk");
    if (got == 0)
      throw Error(Exit::input, "the file became shorter while it was read; " + where +
                                   "; nothing may write to it meanwhile");
    to += got;
    offset += got;
    bytes -= got;
  }
}

bool is_cached(int descriptor, Index offset) {
  char byte = 0;
  const iovec one{&byte, 1};
  return preadv2(descriptor, &one, 1, offset, RWF_NOWAIT) == 1;
}

}  // namespace terrace::io
