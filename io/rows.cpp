#include "io/rows.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "io/files.hpp"
#include "io/hash.hpp"
#include "io/reading.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::io {

namespace {

Object describe_words(const Control& control, const Location& location) {
  Object object = describe(control, location);
  if (object.group || object.bytes != 8 || !object.is_number() || object.dims.empty() ||
      object.dims.size() > 2)
    fail_together(Exit::input, "not a dataset of 8-byte numbers; " + to_string(location) +
                                   "; name another file");
  return object;
}

/// Rows as the file holds them.
void read_bits(const Control& control, const InputFile& input, std::span<const Range> ranges,
               const std::function<void(const Portion&, const char*)>& use) {
  const Object& object = input.object;
  Request request;
  request.as = As::stored;
  request.item_bytes = object.bytes * (object.dims.size() == 2 ? object.dims[1] : 1);
  const Index item_bytes = request.item_bytes;
  request.take = [item_bytes](const Portion&, Index, Index items, Element, const char* raw,
                              char* to) {
    if (raw != to) std::copy_n(raw, items * item_bytes, to);
  };
  read_portions(control, input, request, ranges, use);
}

/// At most `most` items from each of the beginning, the middle and the end of `size`.
std::vector<Range> samples(Index size, Index most) {
  if (size <= 3 * most) return {{0, size}};
  return {{0, most}, {(size - most) / 2, most}, {size - most, most}};
}

}  // namespace

std::vector<Index> stored_shape(const Control& control, const Location& location) {
  return describe_words(control, location).dims;
}

void read_stored(const Control& control, const Location& location, std::span<const Range> ranges,
                 const Sink<Word>& sink) {
  Object object = describe_words(control, location);
  const auto input = open_input(control, location, std::move(object));
  read_bits(control, *input, ranges, [&](const Portion& p, const char* data) {
    sink(p.position, p.items, reinterpret_cast<const Word*>(data));
  });
}

bool stands_alone(const Control& control, const Location& location) {
  const Object object = describe(control, location);
  bool alone = true;
  if (control.rank() == 0) {
    const Handle file = open_alone(location.file);
    const auto look = [&](const std::string& path) {
      const Handle dataset(H5Dopen2(file, path.c_str(), H5P_DEFAULT), &H5Dclose);
      const Handle how(H5Dget_create_plist(dataset), &H5Pclose);
      std::string name(4096, '\0');
      const ssize_t length = H5Fget_name(dataset, name.data(), name.size());
      name.resize(length > 0 && length < ssize_t(name.size()) ? std::size_t(length) : 0);
      alone = alone && dataset.valid() && how.valid() && H5Pget_external_count(how) == 0 &&
              H5Pget_layout(how) != H5D_VIRTUAL && same_file(name, location.file);
    };
    if (!object.group) look(object.path);
    for (const auto& [name, child] : object.children) look(child.path);
  }
  return control.reduce(Index(alone), Reduce::min) > 0;
}

Word fingerprint(const Control& control, const Location& location, bool whole) {
  Object object = describe(control, location);
  AnyAttributes attributes = object.attributes;
  attributes.erase("terrace_hash");
  Word hash = hash_frame(attributes, object.group ? std::vector<Index>{} : object.dims);
  if (object.group) {
    for (const auto& [name, child] : object.children)
      hash = mix(hash + fingerprint(control, {location.file, child.path}, whole));
    return hash;
  }
  if (!object.is_number() || object.dims.empty() || object.dims.size() > 2) return hash;
  const Index width = object.dims.size() == 2 ? object.dims[1] : 1;
  constexpr Index most = Index(1) << 17;  // numbers of a sample
  const bool wide = width > most;
  const auto ranges =
      whole ? contiguous(object.dims[0], control.size()).ranges(control.rank())
      : control.rank() != 0
          ? std::vector<Range>{}
          : samples(object.dims[0],
                    wide ? 1 : std::max<Index>(1, most / std::max<Index>(1, width)));
  const Index bytes = width * object.bytes;
  const auto input = open_input(control, location, std::move(object));
  std::vector<Word> total{0};
  read_bits(control, *input, ranges, [&](const Portion& p, const char* data) {
    std::atomic<Word> sum{0};
    const Index group = std::max<Index>(1, (Index(1) << 16) / std::max<Index>(1, bytes));
    parallel_for(ceil_div(p.items, group), [&](Index g) {
      Word mine = 0;
      for (Index item = g * group; item < std::min(p.items, (g + 1) * group); ++item) {
        const Index position = p.global(item) * ceil_div(bytes, 8);
        for (Index at = 0; at < bytes; at += 8) {
          Word bits = 0;
          std::memcpy(&bits, data + item * bytes + at, std::size_t(std::min<Index>(8, bytes - at)));
          mine += hash_element(bits, position + at / 8);
        }
      }
      sum += mine;
    });
    total[0] += sum;
  });
  control.reduce(total, Reduce::sum);
  return mix(hash + total[0]);
}

}  // namespace terrace::io
