#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "io/order.hpp"
#include "io/reading.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::io {

BitInput open_bits(const Control& control, const Location& location, Role role) {
  Object object = find_object(control, location, Kind::bits, role == Role::right_hand_side);
  const auto refuse = [&](const std::string& what, const std::string& todo) {
    fail_together(Exit::input, what + "; " + where(location, object.path) + "; " + todo);
  };
  if (object.group) refuse("a group, not a dataset", "name one dataset");
  const auto& dims = object.dims;
  if (dims.size() != 1 && dims.size() != 2)
    refuse(fmt::format("wrong shape: {} dimensions", dims.size()), "a bit matrix has 2 dimensions");
  const std::string format = object.text("format"), bitorder = object.text("bitorder");
  if (!format.empty() && format != "bits")
    refuse("wrong kind: attribute format is '" + format + "', a bit matrix is needed",
           "name a bit matrix");
  const bool words = object.number == Number::unsigned_integer && object.bytes == 8;
  const bool one_byte =
      object.is_number() && object.number != Number::floating && object.bytes == 1;
  if (!words && !one_byte)
    refuse("wrong type: not bits",
           "store packed uint64, packed uint8, or uint8, int8, bool of 0 and 1");
  BitInput input;
  // The array of words, of bytes or of bits lies as `order` says.
  const Order order = order_of(object, where(location, object.path));
  const bool marked = role == Role::right_hand_side && order.is_vector(dims);
  input.is_vector_ = dims.size() == 1 || marked;
  input.column_major_ = dims.size() == 2 && (marked ? dims[0] == 1 : order.column_major);
  const Index stored = dims.size() == 2 ? dims[input.column_major_ ? 0 : 1] : 1;
  const Index columns = object.whole("columns");
  const bool has_columns = object.has("columns");
  if (has_columns && columns < 0)
    refuse("wrong attribute: columns is no count", "store an integer");
  const auto check_packed = [&](Index per_item) {
    if (!has_columns)
      refuse("attribute columns is missing", "packed bits say how many columns they have");
    if (ceil_div(columns, per_item) != stored)
      refuse(fmt::format("wrong shape: {} columns do not take {} items a row", columns, stored),
             fmt::format("store {} items a row", ceil_div(columns, per_item)));
  };
  if (words) {
    check_packed(64);
    input.form_ = BitInput::Form::words;
  } else if (object.number == Number::unsigned_integer && !bitorder.empty()) {
    if (bitorder != "little" && bitorder != "big")
      refuse("wrong attribute: bitorder is '" + bitorder + "'", "use little or big");
    check_packed(8);
    input.form_ = bitorder == "big" ? BitInput::Form::bytes_big : BitInput::Form::bytes_little;
  } else {
    if (has_columns && columns != stored)
      refuse("attribute bitorder is missing", "packed bytes say bitorder = \"little\" or \"big\"");
    input.form_ = BitInput::Form::plain;
  }
  input.rows_ = dims[input.column_major_ ? 1 : 0];
  input.columns_ = input.form_ == BitInput::Form::plain ? stored : columns;
  input.location_ = {location.file, object.path};
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

/// One row of 0 and 1 to words; the column of the first other value, or -1.
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

void BitInput::read(const Control& control, std::span<const Range> ranges,
                    const Sink<Word>& sink) const {
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
  const auto& dims = file_->object.dims;
  const Index stored = dims.size() == 2 ? dims[column_major_ ? 0 : 1] : 1;  // items of a row
  const bool is_signed = file_->object.number != Number::unsigned_integer;
  Request request;
  request.as = form_ == Form::words ? As::words : As::bytes;
  request.packs = form_ != Form::words;
  request.item_bytes = width * Index(sizeof(Word));
  const auto pack = [&](const Portion& p, Index item, Index items, const std::uint8_t* from,
                        Word* to) {
    for (Index i = 0; i < items; ++i, from += stored, to += width) {
      if (form_ != Form::plain) {
        pack_bytes(from, stored, form_ == Form::bytes_big, to, width);
      } else if (const Index j = pack_plain(from, columns_, to, width); j >= 0) {
        const double value = is_signed ? double(std::int8_t(from[j])) : double(from[j]);
        wrong.note(p.global(item + i), j, value);
      }
    }
  };
  request.take = [&](const Portion& p, Index item, Index items, Element form, const char* raw,
                     char* out) {
    auto* const to = reinterpret_cast<Word*>(out);
    if (form_ == Form::words)
      to_words(form, raw, to, items * width);
    else
      pack(p, item, items, reinterpret_cast<const std::uint8_t*>(raw), to);
    check_unused(p, item, items, to);
  };
  if (column_major_) {  // items are columns of the dataset, of 8-byte elements
    request.axis = 1;
    request.as = form_ == Form::words ? As::words : As::indices;
    request.item_bytes = stored * 8;
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
                      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(stored));
                      const auto* from = reinterpret_cast<const Index*>(data) + first * stored;
                      for (Index i = first; i < end; ++i, from += stored) {
                        std::copy_n(from, stored, bytes.begin());
                        Word* const to = rows.data() + i * width;
                        pack(p, i, 1, bytes.data(), to);
                        check_unused(p, i, 1, to);
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
        fmt::format("a bit beyond the last column is set; {} row {}; unused bits are zero",
                    file_->where(), first->row));
  fail_together(Exit::input,
                fmt::format("a value other than 0 and 1: {}; {} row {}, column {}; a bit matrix "
                            "holds 0 and 1 only",
                            first->value, file_->where(), first->row, first->column));
}

}  // namespace terrace::io
