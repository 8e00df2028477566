#include "io/stored.hpp"

#include "io/hash.hpp"
#include "io/input_file.hpp"
#include "io/output.hpp"

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
  const Handle type(H5Dget_type(input->dataset()), &H5Tclose);
  Delivery<Word> deliver(ranges, input->object.dims.size() == 2 ? input->object.dims[1] : 1);
  read_pieces<Word>(control, *input, input->dataset(), input->object, ranges, 0, type,
                    [&](const Piece& piece, const Word* data) {
                      deliver(piece.position, piece.items(), data, sink);
                    });
}

Word fingerprint(const Control& control, const Location& location) {
  Object object = describe(control, location);
  AnyAttributes attributes = object.attributes;
  attributes.erase("terrace_hash");
  Word hash = hash_frame(attributes, object.group ? std::vector<Index>{} : object.dims);
  if (object.group) {
    for (const char* child : {"data", "indices", "indptr"}) {
      const Location inside{location.file, location.path + "/" + child};
      hash = mix(hash + fingerprint(control, inside));
    }
    return hash;
  }
  if (!object.is_number() || object.dims.empty() || object.dims.size() > 2) return hash;
  const Index width = object.dims.size() == 2 ? object.dims[1] : 1;
  constexpr Index most = Index(1) << 17;  // numbers of a sample
  const bool wide = width > most;
  const auto ranges =
      control.rank() != 0
          ? std::vector<Range>{}
          : samples(object.dims[0],
                    wide ? 1 : std::max<Index>(1, most / std::max<Index>(1, width)));
  const auto input = open_input(control, location, std::move(object));
  std::vector<Word> total{0};
  read_pieces<double>(control, *input, input->dataset(), input->object, ranges, 0,
                      H5T_NATIVE_DOUBLE, [&](const Piece& piece, const double* data) {
                        total[0] += hash_run(reinterpret_cast<const Word*>(data),
                                             piece.items() * width, piece.first * width);
                      });
  control.reduce(total, Reduce::sum);
  return mix(hash + total[0]);
}

}  // namespace terrace::io
