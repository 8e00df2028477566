#include "io/order.hpp"

#include <algorithm>
#include <utility>

#include "distrib/agree.hpp"
#include "io/recognised.hpp"

namespace terrace::io {

namespace {
std::vector<std::string>& recognised() {
  static std::vector<std::string> all;
  return all;
}
}  // namespace

Order order_of(const Object& object, const std::string& where) {
  const auto refuse = [&](const std::string& what, const std::string& todo) {
    fail_together(Exit::input, what + "; " + where + "; " + todo);
  };
  Order order;
  const std::string text = object.text("order"), matlab = object.text("MATLAB_class");
  if (!text.empty() && text != "column-major" && text != "row-major")
    refuse("wrong attribute: order is '" + text + "'", "use row-major or column-major");
  order.stated = !text.empty();
  order.column_major = text == "column-major";
  order.matlab = object.has("MATLAB_class");
  if (!order.matlab) return order;
  if (matlab == "char" || matlab == "cell" || matlab == "struct" || matlab == "function_handle")
    refuse("wrong type: MATLAB data of class " + matlab, "save a matrix of numbers");
  if (object.whole("MATLAB_empty") > 0)
    refuse("an empty MATLAB array", "a matrix has rows and columns");
  if (object.dims.size() != 2) return order;
  if (text == "row-major")
    refuse("attribute order is 'row-major', but MATLAB stores by columns",
           "correct one of the two");
  order.column_major = true;
  if (order.stated) return order;
  recognise("MATLAB data recognised, read as column-major; " + where +
            "; set the attribute order = \"column-major\" on the dataset to say so yourself");
  return order;
}

void recognise(const std::string& note) {
  if (std::find(recognised().begin(), recognised().end(), note) == recognised().end())
    recognised().push_back(note);
}

std::vector<std::string> take_recognised() { return std::exchange(recognised(), {}); }

}  // namespace terrace::io
