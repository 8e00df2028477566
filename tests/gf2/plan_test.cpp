#include "src/gf2/plan.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kernels/base/error.hpp"
#include "src/program/profile.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::gf2;
using namespace terrace::test;

namespace {

/// A profile of its own while it lives.
struct OwnProfile {
  std::string path = (std::filesystem::temp_directory_path() /
                      ("terrace_profile_" + std::to_string(world().size()) + ".json"))
                         .string();
  OwnProfile() {
    clear();
    setenv("TERRACE_PROFILE", path.c_str(), 1);
  }
  ~OwnProfile() {
    clear();
    unsetenv("TERRACE_PROFILE");
  }
  void write(const std::string& text) const {
    if (world().rank() == 0) std::ofstream(path) << text;
    world().barrier();
  }

 private:
  void clear() const {
    world().barrier();
    if (world().rank() == 0) std::filesystem::remove(path);
    world().barrier();
  }
};

bool refused(PanelWish options, Index candidates = 0) {
  options.candidates = candidates;
  try {
    require_bit_method(options);
    return false;
  } catch (const Error& error) {
    return error.code() == Exit::usage;
  }
}

}  // namespace

TEST_CASE("a profile keeps what other devices and families stored") {
  const OwnProfile file;
  CHECK_ALL(load_profile(world(), "one", "gf2").empty());
  save_profile(world(), "one", "gf2", {{"a", 1}});
  save_profile(world(), "two", "gf2", {{"a", 2}});
  save_profile(world(), "one", "band", {{"a", 3}});
  CHECK_ALL(load_profile(world(), "one", "gf2")["a"] == 1);
  CHECK_ALL(load_profile(world(), "two", "gf2")["a"] == 2);
  CHECK_ALL(load_profile(world(), "one", "band")["a"] == 3);
  CHECK_ALL(load_profile(world(), "two", "band").empty());
  file.write("{\"one\": [broken");
  CHECK_ALL(load_profile(world(), "one", "gf2").empty());
  save_profile(world(), "one", "gf2", {{"a", 4}});
  CHECK_ALL(load_profile(world(), "one", "gf2")["a"] == 4);
  file.write("{\"one\": 5, \"two\": {\"gf2\": []}}");
  CHECK_ALL(
      (load_profile(world(), "one", "gf2").empty() && load_profile(world(), "two", "gf2").empty()));
  save_profile(world(), "one", "gf2", {{"a", 6}});
  CHECK_ALL(load_profile(world(), "one", "gf2")["a"] == 6);
}

TEST_CASE("a folder in the profile's place is no profile, and is not written") {
  const OwnProfile file;
  world().barrier();
  if (world().rank() == 0) std::filesystem::create_directory(file.path);
  world().barrier();
  CHECK_ALL(load_profile(world(), "one", "gf2").empty());
  bool refused = false;
  try {
    save_profile(world(), "one", "gf2", {{"a", 1}});
  } catch (const Error& error) {
    refused = error.code() == Exit::resources;
  }
  CHECK_ALL(refused);
  CHECK_ALL(!std::filesystem::exists(file.path + ".part"));
}

TEST_CASE("plans follow the profile of their device and nothing that does not fit") {
  const OwnProfile file;
  Context<Cpu>& context = *test::context<Cpu>();
  const std::string device = device_model(context);
  PanelWish options;
  const auto plan = [&](Index n) {
    return plan_panels(context, options, n * context.size(), measured_panels(context));
  };
  const Index standard = plan(1000).columns;
  CHECK_ALL(!plan(1000).measured);
  save_profile(world(), device, "gf2",
               {{"panels", {{0, 64}, {5000, 192}}},
                {"shapes", {{{"k", 5}, {"tables", 12}, {"rows", 0}, {"threads", 0}}}}});
  CHECK_ALL((plan(1000).columns == 64 && plan(1000).measured));
  CHECK_ALL((plan(5000).columns == 192 && plan(1 << 20).columns == 192));
  CHECK_ALL((plan(1000).product.shape.k == 5 && plan(1000).product.shape.tables == 12));
  options.k = 7;  // not measured: the default of that k
  CHECK_ALL((plan(1000).product.shape.k == 7 && plan(1000).product.shape.tables == 0));
  options = {};
  options.block = 100;
  CHECK_ALL((plan(1000).columns == 128 && !plan(1000).measured));
  options = {};
  const auto ignored = [&](const nlohmann::json& values) {
    save_profile(world(), device, "gf2", values);
    return plan(1000).columns == standard && !plan(1000).measured &&
           plan(1000).product.shape.k == 0;
  };
  CHECK_ALL(ignored({{"panels", {{0, 100}}}}));
  CHECK_ALL(ignored({{"panels", {{0, 1 << 20}}}}));
  CHECK_ALL(ignored({{"panels", {{0, -64}}}}));
  CHECK_ALL(ignored({{"panels", "wide"}, {"shapes", {{{"k", 99}}}}}));
  CHECK_ALL(ignored({{"panels", {{0}}}, {"shapes", {1, 2}}}));
}

TEST_CASE("options of an elimination that contradict each other are refused") {
  PanelWish o;
  CHECK_ALL(!refused(o));
  o.method = "tables", o.k = 14, o.tables = "broadcast", o.panels = "host";
  CHECK_ALL(!refused(o));
  o.k = 15;
  CHECK_ALL(refused(o));
  o = {};
  o.method = "tensor", o.k = 8;
  CHECK_ALL(refused(o));
  o = {};
  o.tables = "remote";
  CHECK_ALL(refused(o));
  o = {};
  o.panels = "nowhere";
  CHECK_ALL(refused(o));
  o = {};
  o.method = "columns";
  CHECK_ALL(!refused(o));
  o.guard = true, o.block = 64;
  CHECK_ALL(!refused(o));
  o.block = 128;
  CHECK_ALL(refused(o));
  o = {}, o.method = "columns", o.k = 1;
  CHECK_ALL(refused(o));
  o = {}, o.method = "columns", o.panels = "host";
  CHECK_ALL(refused(o));
  o = {}, o.method = "columns", o.tables = "local";
  CHECK_ALL(refused(o));
  o = {}, o.method = "columns";
  CHECK_ALL(refused(o, 3));
  o = {};
  CHECK_ALL(!refused(o, 3));
  o.block = 320;
  CHECK_ALL(!refused(o, 3));
  o.block = 384;
  CHECK_ALL(refused(o, 3));
  o = {};
  CHECK_ALL((!refused(o, 16) && refused(o, 17)));
  o.method = "tensor";
  CHECK_ALL(refused(o, 3));
}

TEST_CASE("candidates narrow the panels, and columns follow their profile") {
  const OwnProfile file;
  Context<Cpu>& context = *test::context<Cpu>();
  PanelWish options;
  options.block = 300;
  options.candidates = 3;
  PanelPlan plan = plan_panels(context, options, 100000);
  CHECK_ALL((plan.columns == 320 && plan.candidates == 3 && plan.product.tables));
  options.block = 0, options.candidates = 10;
  plan = plan_panels(context, options, 100000);
  CHECK_ALL((plan.columns == 64 && plan.candidates == 10));
  options = {};
  options.method = "columns";
  if (context.size() > 1) {
    bool refused = false;
    try {
      plan_panels(context, options, 1000);
    } catch (const Error& error) {
      refused = error.code() == Exit::usage;
    }
    CHECK_ALL(refused);
    return;
  }
  const auto shape = [&](const nlohmann::json& columns) {
    save_profile(world(), device_model(context), "gf2", {{"columns", columns}});
    plan = plan_panels(context, options, 1000, measured_panels(context));
    return plan.column_shape;
  };
  CHECK((shape(nullptr) == ColumnShape{} && plan.by_columns && !plan.measured));
  nlohmann::json entry = {{"search_threads", 32}, {"threads", 96}, {"lanes", 16}, {"blocks", 50}};
  CHECK((shape(entry) == ColumnShape{32, 96, 16, 50} && plan.measured));
  const std::pair<const char*, int> wrong[] = {
      {"lanes", 12}, {"threads", 100}, {"blocks", 0}, {"search_threads", 1025}, {"threads", 2048}};
  for (const auto& [name, value] : wrong) {
    nlohmann::json bad = entry;
    bad[name] = value;
    CHECK((shape(bad) == ColumnShape{} && !plan.measured));
  }
}
