#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "io/order.hpp"
#include "io/reading.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::io {

BitInput open_bits(const Control& control, const Location& location, const Wanted& wanted) {
  Object object = find_object(control, location, Kind::bits, wanted);
  const FormOptions& said = location.form;
  const auto refuse = [&](const std::string& what, const std::string& todo) {
    fail_together(Exit::input, what + "; " + where(location, object.path) + "; " + todo);
  };
  BitInput input;
  if (object.group) {
    Location at = location;
    at.path = object.path;
    input.sparse_ = open_sparse(control, at);
    input.form_ = BitInput::Form::sparse;
    input.rows_ = input.sparse_.rows();
    input.columns_ = input.sparse_.columns();
    input.location_ = input.sparse_.location();
    return input;
  }
  const auto& dims = object.dims;
  if (dims.size() != 1 && dims.size() != 2)
    refuse(fmt::format("wrong shape: {} dimensions", dims.size()), "a bit matrix has 2 dimensions");
  const std::string format = object.text("format"), bitorder = object.text("bitorder");
  said.require_obeyed("a bit matrix", "--order --bitorder --columns --shape",
                      "bits dense csr csc coo");
  if (!format.empty() && format != "bits" && format != "dense")
    refuse("wrong kind: attribute format is '" + format + "', a bit matrix is needed",
           "name a bit matrix");
  if (!object.is_number())
    refuse("wrong type: not bits",
           "store packed uint64, packed uint8, or integers, bool or floats of 0 and 1");
  const bool is_unsigned = object.number == Number::unsigned_integer;
  const bool words = is_unsigned && object.bytes == 8 &&
                     (format == "bits" || object.has("columns")) && format != "dense";
  // The array of words, of bytes or of bits lies as `order` says.
  const Order order = order_of(object, where(location, object.path));
  const bool marked = !wanted.is_matrix() && order.is_vector(dims);
  input.is_vector_ = dims.size() == 1 || marked;
  input.column_major_ = dims.size() == 2 && (marked ? dims[0] == 1 : order.column_major);
  const Index stored = dims.size() == 2 ? dims[input.column_major_ ? 0 : 1] : 1;
  const bool packed = words || (is_unsigned && object.bytes == 1 && !bitorder.empty());
  Index columns = object.whole("columns");
  bool has_columns = object.has("columns");
  if (packed && !has_columns && said.shape.size() == 2) {
    columns = said.shape[1];
    has_columns = true;
  }
  if (has_columns && columns < 0)
    refuse("wrong attribute: columns is not a count", "store an integer");
  const auto check_packed = [&](Index per_item) {
    if (!has_columns)
      refuse("attribute columns is missing",
             "store the number of columns as this attribute, or add --columns N");
    if (ceil_div(columns, per_item) != stored)
      refuse(fmt::format("wrong shape: {} columns do not need {} items per row", columns, stored),
             fmt::format("store {} items per row", ceil_div(columns, per_item)));
  };
  if (words) {
    check_packed(64);
    input.form_ = BitInput::Form::words;
  } else if (packed) {
    if (bitorder != "little" && bitorder != "big")
      refuse("wrong attribute: bitorder is '" + bitorder + "'", "use little or big");
    check_packed(8);
    input.form_ = bitorder == "big" ? BitInput::Form::bytes_big : BitInput::Form::bytes_little;
  } else {
    if (has_columns && columns != stored)
      refuse("attribute bitorder is missing",
             "store bitorder = \"little\" or \"big\", or add --bitorder");
    input.form_ = BitInput::Form::plain;
  }
  input.rows_ = dims[input.column_major_ ? 1 : 0];
  input.columns_ = packed ? columns : stored;
  if (said.shape.size() == 2 && said.shape != std::vector<Index>{input.rows_, input.columns_})
    refuse(fmt::format("the file says {} x {}, but --shape says {}x{}", input.rows_, input.columns_,
                       said.shape[0], said.shape[1]),
           "correct one of the two");
  input.location_ = {location.file, object.path, said};
  input.file_ = open_input(control, location, std::move(object));
  return input;
}

namespace {

Word reversed_bits(Word byte) {
  byte = (byte & 0xf0) >> 4 | (byte & 0x0f) << 4;
  byte = (byte & 0xcc) >> 2 | (byte & 0x33) << 2;
  return (byte & 0xaa) >> 1 | (byte & 0x55) << 1;
}

/// The bits of each of eight bytes in the other order.
Word reversed_bytes_bits(Word w) {
  w = (w & 0xf0f0f0f0f0f0f0f0ull) >> 4 | (w & 0x0f0f0f0f0f0f0f0full) << 4;
  w = (w & 0xccccccccccccccccull) >> 2 | (w & 0x3333333333333333ull) << 2;
  return (w & 0xaaaaaaaaaaaaaaaaull) >> 1 | (w & 0x5555555555555555ull) << 1;
}

/// One row of packed bytes to words; unused bytes are zero.
void pack_bytes(const std::uint8_t* from, Index bytes, bool big, Word* to, Index words) {
  for (Index w = 0; w < words; ++w) {
    Word word = 0;
    if (std::endian::native == std::endian::little && w * 8 + 8 <= bytes) {
      std::memcpy(&word, from + w * 8, 8);
      to[w] = big ? reversed_bytes_bits(word) : word;
      continue;
    }
    for (Index b = w * 8; b < std::min(bytes, w * 8 + 8); ++b)
      word |= (big ? reversed_bits(from[b]) : Word(from[b])) << (8 * (b % 8));
    to[w] = word;
  }
}

/// One row of numbers 0 and 1 to words; the column of the first other value, or -1.
template <class T>
Index pack_numbers(const T* from, Index columns, Word* to, Index words) {
  Index wrong = -1;
  for (Index w = words - 1; w >= 0; --w) {
    Word word = 0;
    for (Index j = std::min(columns, w * 64 + 64) - 1; j >= w * 64; --j) {
      if (!(from[j] == 0 || from[j] == 1)) wrong = j;
      word = word << 1 | Word(from[j] == 1);
    }
    to[w] = word;
  }
  return wrong;
}

/// The same of one-byte numbers, eight at once.
Index pack_plain(const std::uint8_t* from, Index columns, Word* to, Index words) {
  Word seen = 0;
  for (Index w = 0; w < words; ++w) {
    Word word = 0;
    const Index count = std::min<Index>(64, columns - w * 64);
    const std::uint8_t* const at = from + w * 64;
    Index b = 0;
    if constexpr (std::endian::native == std::endian::little)
      for (; b + 8 <= count; b += 8) {  // eight bytes of one bit each, gathered in the highest byte
        Word eight;
        std::memcpy(&eight, at + b, 8);
        seen |= eight;
        word |= ((eight & 0x0101010101010101ull) * 0x0102040810204080ull >> 56) << b;
      }
    for (; b < count; ++b) {
      seen |= at[b];
      word |= Word(at[b] & 1) << b;
    }
    to[w] = word;
  }
  if ((seen & 0xfefefefefefefefeull) == 0) return -1;
  Index j = 0;
  while (from[j] <= 1) ++j;
  return j;
}

}  // namespace

namespace {

/// Rows of a dataset to packed words, and what is wrong with them.
struct Packing {
  bool big = false, packed = false, floating = false, is_signed = false;
  Index stored = 0;  ///< items of a row
  Index columns = 0, width = 0;
  SharedOffender& wrong;

  /// `count` rows of bytes.
  void bytes(const Portion& p, Index item, Index count, const std::uint8_t* from, Word* to) const {
    for (Index i = 0; i < count; ++i, from += stored, to += width) {
      if (packed) {
        pack_bytes(from, stored, big, to, width);
      } else if (const Index j = pack_plain(from, columns, to, width); j >= 0) {
        const double value = is_signed ? double(std::int8_t(from[j])) : double(from[j]);
        wrong.note(p.global(item + i), j, value);
      }
    }
  }
  /// Of 8-byte numbers.
  template <class T>
  void numbers(const Portion& p, Index item, Index count, const T* from, Word* to) const {
    for (Index i = 0; i < count; ++i, from += stored, to += width)
      if (const Index j = pack_numbers(from, columns, to, width); j >= 0)
        wrong.note(p.global(item + i), j, double(from[j]));
  }
  /// In the file's form.
  void raw(const Portion& p, Index item, Index count, Element form, const char* from,
           Word* to) const {
    if (form.bytes == 1)
      return bytes(p, item, count, reinterpret_cast<const std::uint8_t*>(from), to);
    thread_local std::vector<char> kept;
    const Index size = count * stored;
    if (Index(kept.size()) < size * 8) kept.resize(std::size_t(size * 8));
    if (floating) {
      auto* const converted = reinterpret_cast<double*>(kept.data());
      to_doubles(form, from, converted, size);
      return numbers(p, item, count, converted, to);
    }
    auto* const converted = reinterpret_cast<Index*>(kept.data());
    to_indices(form, from, converted, size);
    numbers(p, item, count, converted, to);
  }
  /// From 8-byte elements, as columns of a dataset come.
  void wide(const Portion& p, Index item, const char* from, Word* to) const {
    if (floating) return numbers(p, item, 1, reinterpret_cast<const double*>(from), to);
    const auto* const whole = reinterpret_cast<const Index*>(from);
    if (!packed) return numbers(p, item, 1, whole, to);
    std::vector<std::uint8_t> row(static_cast<std::size_t>(stored));
    std::copy_n(whole, stored, row.begin());
    bytes(p, item, 1, row.data(), to);
  }
};

}  // namespace

void BitInput::read(const Control& control, std::span<const Range> ranges,
                    const Sink<Word>& sink) const {
  if (form_ == Form::sparse) return sparse_.read_bits(control, ranges, sink);
  const Index width = words();
  Delivery<Word> deliver(ranges, width);
  const Word unused = columns_ % 64 == 0 ? 0 : ~Word(0) << (columns_ % 64);
  SharedOffender wrong;
  const auto check_unused = [&](const Portion& p, Index item, Index items, const Word* data) {
    if (unused == 0 || width == 0) return;
    for (Index i = 0; i < items; ++i)
      if ((data[i * width + width - 1] & unused) != 0)
        return wrong.note(p.global(item + i), columns_, 1);
  };
  const Object& object = file_->object;
  const auto& dims = object.dims;
  const Index stored = dims.size() == 2 ? dims[column_major_ ? 0 : 1] : 1;  // items of a row
  const Packing packing{.big = form_ == Form::bytes_big,
                        .packed = form_ != Form::plain,
                        .floating = object.number == Number::floating,
                        .is_signed = object.number != Number::unsigned_integer,
                        .stored = stored,
                        .columns = columns_,
                        .width = width,
                        .wrong = wrong};
  Request request;
  request.as = form_ == Form::words ? As::words
               : object.bytes == 1  ? As::bytes
               : packing.floating   ? As::doubles
                                    : As::indices;
  request.packs = form_ != Form::words;
  request.item_bytes = width * Index(sizeof(Word));
  request.take = [&](const Portion& p, Index item, Index items, Element form, const char* raw,
                     char* out) {
    auto* const to = reinterpret_cast<Word*>(out);
    if (form_ == Form::words)
      to_words(form, raw, to, items * width);
    else
      packing.raw(p, item, items, form, raw, to);
    check_unused(p, item, items, to);
  };
  if (column_major_) {  // items are columns of the dataset, of 8-byte elements
    request.axis = 1;
    request.as = form_ == Form::words ? As::words : packing.floating ? As::doubles : As::indices;
    request.item_bytes = stored * 8;
    request.wrong = [&](Index i, Index j, double value) { wrong.note(i, j, value); };
  }
  std::vector<Word> rows;
  const auto use = [&](const Portion& p, const char* data) {
    if (!column_major_ || form_ == Form::words) {
      if (column_major_) check_unused(p, 0, p.items, reinterpret_cast<const Word*>(data));
      return deliver(p.position, p.items, reinterpret_cast<const Word*>(data), sink);
    }
    rows.resize(std::size_t(p.items * width));
    parallel_ranges(p.items, std::max<Index>(1, (Index(1) << 16) / std::max<Index>(1, stored)),
                    [&](Index first, Index end) {
                      for (Index i = first; i < end; ++i) {
                        packing.wide(p, i, data + i * stored * 8, rows.data() + i * width);
                        check_unused(p, i, 1, rows.data() + i * width);
                      }
                    });
    deliver(p.position, p.items, rows.data(), sink);
  };
  read_portions(control, *file_, request, ranges, use);
  const auto first = first_offender(control, wrong.first());
  if (!first) return;
  if (first->column == columns_)
    fail_together(
        Exit::input,
        fmt::format("a bit beyond the last column is set; {} row {}; unused bits must be zero",
                    file_->where(), first->row));
  fail_together(Exit::input,
                fmt::format("a value other than 0 and 1: {}; {} row {}, column {}; a bit matrix "
                            "holds 0 and 1 only{}",
                            first->value, file_->where(), first->row, first->column,
                            object.number == Number::unsigned_integer && object.bytes == 8
                                ? " (packed words? add --columns N)"
                                : ""));
}

std::unique_ptr<Rereading> BitInput::reread(std::span<const Range> ranges) const {
  if (form_ != Form::words) return nullptr;
  return Rereading::of(file_, {.axis = column_major_ ? 1 : 0, .words = true}, ranges);
}

}  // namespace terrace::io
