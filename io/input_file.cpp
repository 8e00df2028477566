#include "io/input_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

namespace terrace::io {

namespace {
Index size_of(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? Index(status.st_size) : 0;
}
}  // namespace

std::optional<Error> InputFile::shortened() const {
  const Index left = size_of(location.file);
  if (left >= bytes) return std::nullopt;
  return Error(Exit::input,
               fmt::format("the file got shorter while it was read: {} bytes, then {}; "
                           "{}; write it again and leave it alone",
                           bytes, left, where()));
}

std::shared_ptr<InputFile> open_input(const Control& control, const Location& location,
                                      Object object) {
  auto input = std::make_shared<InputFile>();
  input->location = {location.file, object.path};
  input->bytes = size_of(location.file);
  // Every rank opens alone: the rounds of a read are our own, and no close waits for a rank that
  // failed.
  input->file = open_alone(location.file);
  collectively(control, [&] {
    hdf5_check(input->file, "cannot open the file on every rank", location.file);
    const auto open = [&](const std::string& name, const std::string& path) {
      input->datasets.emplace(name,
                              Handle(hdf5_check(H5Dopen2(input->file, path.c_str(), H5P_DEFAULT),
                                                "cannot open the dataset", where(location, path)),
                                     &H5Dclose));
    };
    if (!object.group) open("", object.path);
    for (const auto& [name, child] : object.children) open(name, child.path);
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
    fail_together(Exit::input,
                  fmt::format("{} in the input; {} row {}, column {}; only finite numbers can be "
                              "worked on",
                              first->value != first->value ? "NaN" : "Inf", where, first->row,
                              first->column));
}

}  // namespace terrace::io
