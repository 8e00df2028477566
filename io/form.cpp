#include "io/form.hpp"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "distrib/agree.hpp"

namespace terrace::io {

std::string FormOptions::to_text() const {
  std::string text;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += fmt::format("{}{} {}", text.empty() ? "" : " ", name, value);
  };
  add("--format", format);
  add("--uplo", uplo);
  add("--order", order);
  add("--bitorder", bitorder);
  add("--columns", columns < 0 ? "" : std::to_string(columns));
  add("--shape", shape.size() == 2 ? fmt::format("{}x{}", shape[0], shape[1]) : "");
  return text;
}

std::vector<Index> FormOptions::shape_from(const std::string& text) {
  std::vector<Index> shape(2);
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int k = 0; k < 2; ++k) {
    const auto [next, error] = std::from_chars(at, end, shape[std::size_t(k)]);
    if (error != std::errc() || shape[std::size_t(k)] < 0) return {};
    if (k == 0 && (next == end || (*next != 'x' && *next != 'X'))) return {};
    at = k == 0 ? next + 1 : next;
  }
  return at == end ? shape : std::vector<Index>{};
}

FormOptions FormOptions::from_text(const std::string& text) {
  FormOptions result;
  std::istringstream words(text);
  std::string name, value;
  while (words >> name >> value) {
    if (name == "--format") result.format = value;
    if (name == "--uplo") result.uplo = value;
    if (name == "--order") result.order = value;
    if (name == "--bitorder") result.bitorder = value;
    if (name == "--columns")
      std::from_chars(value.data(), value.data() + value.size(), result.columns);
    if (name == "--shape") result.shape = shape_from(value);
  }
  return result;
}

FormOptions FormOptions::of_others() const {
  FormOptions result;
  result.order = order;
  result.bitorder = bitorder;
  result.yields = true;
  return result;
}

void FormOptions::add(const FormOptions& said, const std::string& where) {
  const auto open = []<class T>(const T& value) {
    if constexpr (std::is_same_v<T, Index>)
      return value < 0;
    else
      return value.empty();
  };
  const auto take = [&](auto& mine, const auto& more, const char* name) {
    if (open(more) || mine == more) return;
    if (!open(mine))
      fail_together(Exit::input,
                    fmt::format("the result was made with a different {}: {}; {}; leave "
                                "the option out",
                                name, to_text(), where));
    mine = more;
  };
  take(format, said.format, "--format");
  take(uplo, said.uplo, "--uplo");
  take(order, said.order, "--order");
  take(bitorder, said.bitorder, "--bitorder");
  take(columns, said.columns, "--columns");
  take(shape, said.shape, "--shape");
}

void FormOptions::require_obeyed(const std::string& what, const std::string& obeyed,
                                 const std::string& formats) const {
  const auto has = [](const std::string& list, const std::string& word) {
    return (" " + list + " ").find(" " + word + " ") != std::string::npos;
  };
  if (!format.empty() && !has(formats, format))
    fail_together(Exit::usage,
                  fmt::format("{} has no meaning for this form; --format {}; leave it out"
                              ", or use {}",
                              what, format, formats));
  const std::pair<bool, const char*> given[] = {{!uplo.empty(), "--uplo"},
                                                {!order.empty(), "--order"},
                                                {!bitorder.empty(), "--bitorder"},
                                                {columns >= 0, "--columns"},
                                                {!shape.empty(), "--shape"}};
  for (const auto& [is_given, name] : given)
    if (is_given && !yields && !has(obeyed, name))
      fail_together(Exit::usage, fmt::format("{} does not need it; {}; leave it out", what, name));
}

}  // namespace terrace::io
