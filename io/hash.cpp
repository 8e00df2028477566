#include "io/hash.hpp"

#include "io/archive.hpp"
#include "io/output.hpp"
#include "io/placing.hpp"
#include "io/reading.hpp"

namespace terrace::io {

Word hash_frame(const AnyAttributes& attributes, const std::vector<Index>& dims) {
  Writer writer;
  Object object;
  object.attributes = attributes;
  object.dims = dims;
  write_object(writer, object);
  Word hash = 0;
  for (std::size_t i = 0; i < writer.bytes.size(); ++i)
    hash = mix(hash + Word(static_cast<unsigned char>(writer.bytes[i])) + 1);
  return hash;
}

bool content_hash_holds(const Control& control, const Location& location) {
  Object object = describe(control, location);
  const auto stored = object.attributes.find(hash_name);
  if (stored == object.attributes.end() || !std::holds_alternative<Index>(stored->second))
    return false;
  const Word expected = Word(std::get<Index>(stored->second));
  AnyAttributes covered = object.attributes;
  covered.erase(hash_name);
  std::vector<Word> sum{0};
  if (!object.group) {
    if (object.bytes != 8 || !object.is_number() || object.dims.empty() || object.dims.size() > 2)
      return false;
    const Index width = object.dims.size() == 2 ? object.dims[1] : 1;
    const auto ranges = contiguous(object.dims[0], control.size()).ranges(control.rank());
    const auto input = open_input(control, location, object);
    Request request;
    request.as = As::stored;
    request.item_bytes = 8 * width;
    request.take = [&](const Portion&, Index, Index items, Element, const char* raw, char* to) {
      if (raw != to) std::copy_n(raw, items * 8 * width, to);
    };
    read_portions(control, *input, request, ranges, [&](const Portion& p, const char* data) {
      const auto* words = reinterpret_cast<const Word*>(data);
      std::vector<Run> runs;
      for (std::size_t k = 0; k < p.ranges.size(); ++k)
        runs.push_back({p.starts[k] * width, p.ranges[k].first * width, p.ranges[k].count * width});
      sum[0] += hash_runs(words, runs);
    });
  }
  control.reduce(sum, Reduce::sum);
  return sum[0] + hash_frame(covered, object.group ? std::vector<Index>{} : object.dims) ==
         expected;
}

}  // namespace terrace::io
