#include "src/program/predict.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/base/backend.hpp"

namespace terrace {

namespace {

nlohmann::json to_json(const Amounts& amounts) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, value] : amounts) json[name] = value;
  return json;
}
Amounts to_amounts(const nlohmann::json& json) {
  Amounts amounts;
  for (const auto& [name, value] : json.items()) amounts.emplace_back(name, value.get<double>());
  return amounts;
}

constexpr double giga = 1e-9;

Amounts bytes(double count) { return {{"start", 1}, {"bytes", giga * count}}; }

double evaluate(const Amounts& amounts, const nlohmann::json& rates) {
  double seconds = 0;
  if (!rates.is_object()) return 0;
  for (const auto& [name, value] : amounts)
    if (rates.contains(name) && rates[name].is_number())
      seconds += value * rates[name].get<double>();
  return seconds;
}

/// Least squares of F x = t over the columns in `set` by normal equations; false when they are
/// dependent or something is negative.
bool solve_subset(const std::vector<std::vector<double>>& f, const std::vector<double>& t,
                  const std::vector<std::size_t>& set, std::vector<double>& x) {
  const std::size_t k = set.size();
  std::vector<std::vector<double>> a(k, std::vector<double>(k + 1, 0.0));
  for (std::size_t s = 0; s < t.size(); ++s)
    for (std::size_t i = 0; i < k; ++i) {
      for (std::size_t j = 0; j < k; ++j) a[i][j] += f[s][set[i]] * f[s][set[j]];
      a[i][k] += f[s][set[i]] * t[s];
    }
  for (std::size_t p = 0; p < k; ++p) {  // symmetric and scaled to a unit diagonal
    if (!(a[p][p] > 1e-10)) return false;
    for (std::size_t i = p + 1; i < k; ++i) {
      const double factor = a[i][p] / a[p][p];
      for (std::size_t j = p; j <= k; ++j) a[i][j] -= factor * a[p][j];
    }
  }
  x.assign(k, 0.0);
  for (std::size_t p = k; p-- > 0;) {
    double sum = a[p][k];
    for (std::size_t j = p + 1; j < k; ++j) sum -= a[p][j] * x[j];
    x[p] = sum / a[p][p];
    if (!(x[p] >= 0)) return false;
  }
  return true;
}

}  // namespace

nlohmann::json Work::json() const {
  return {{"model", model},          {"read", to_json(read)},   {"solve", to_json(solve)},
          {"check", to_json(check)}, {"write", to_json(write)}, {"iteration", to_json(iteration)},
          {"iterations", iterations}};
}

Work Work::from(const nlohmann::json& json) {
  Work work;
  work.model = json.value("model", "");
  work.read = to_amounts(json["read"]);
  work.solve = to_amounts(json["solve"]);
  work.check = to_amounts(json["check"]);
  work.write = to_amounts(json["write"]);
  work.iteration = to_amounts(json["iteration"]);
  work.iterations = json.value("iterations", 0.0);
  return work;
}

Seconds predict(const Work& work, const nlohmann::json& rates) {
  const auto of = [&](const char* phase) {
    return rates.is_object() && rates.contains(phase) ? rates[phase] : nlohmann::json::object();
  };
  Seconds s;
  if (rates.is_object()) s.start = rates.value("begin", 0.0);
  s.read = evaluate(work.read, of("read"));
  s.iteration = evaluate(work.iteration, of("solve"));
  s.solve = evaluate(work.solve, of("solve")) + work.iterations * s.iteration;
  if (rates.is_object() && s.solve > 0) s.solve += rates.value("first", 0.0);
  s.check = evaluate(work.check, of("check"));
  s.write = evaluate(work.write, of("write"));
  return s;
}

std::string rates_shared_by(const std::string& model, const std::string& phase) {
  // Streamed bands are read within the solve; mixed precision is checked in another way.
  if (phase == "solve" || model.find("streamed") != std::string::npos) return model;
  const auto words = [&](int count) {
    std::size_t end = 0;
    for (; count > 0 && end != std::string::npos; --count) end = model.find(' ', end + (end > 0));
    return model.substr(0, end);
  };
  const std::string command = words(2), family = words(1);
  if (phase == "check") return model.find("mixed") != std::string::npos ? model : command;
  return family == "cg" ? model.substr(0, model.find(',')) : family;
}

nlohmann::json fit_rates(const std::vector<Sample>& samples, const nlohmann::json& floor) {
  std::vector<std::string> names;
  double longest = 0;
  for (const Sample& sample : samples) {
    longest = std::max(longest, sample.seconds);
    for (const auto& [name, value] : sample.amounts)
      if (value > 0 && std::find(names.begin(), names.end(), name) == names.end())
        names.push_back(name);
  }
  nlohmann::json rates = nlohmann::json::object();
  const std::size_t count = std::min<std::size_t>(names.size(), 10);
  if (count == 0 || !(longest > 0)) return rates;
  std::vector<std::vector<double>> f;
  std::vector<double> t, scale(count, 0.0);
  for (const Sample& sample : samples) {
    // Relative errors; clocks and page faults blur what takes less than a millisecond.
    const double seconds = std::max(sample.seconds, 1e-6);
    const double weight = std::pow(seconds / longest, 0.35) / std::max(seconds, 1e-3);
    std::vector<double> row(count, 0.0);
    for (const auto& [name, value] : sample.amounts) {
      const auto found = std::find(names.begin(), names.end(), name);
      if (found != names.end() && std::size_t(found - names.begin()) < count)
        row[std::size_t(found - names.begin())] += weight * value;
    }
    for (std::size_t i = 0; i < count; ++i) scale[i] += row[i] * row[i];
    f.push_back(row);
    // What lies above the floor; less than nothing where caches help the small ones.
    t.push_back(weight * std::max(0.0, sample.seconds - evaluate(sample.amounts, floor)));
  }
  for (std::size_t i = 0; i < count; ++i) {
    scale[i] = std::sqrt(scale[i]);
    for (auto& row : f) row[i] /= std::max(scale[i], 1e-300);
  }
  // The best set of amounts, each at a positive rate; one more has to bring something.
  double best = INFINITY;
  std::vector<double> best_x, x;
  std::vector<std::size_t> best_set;
  for (std::size_t bits = 1; bits < (std::size_t(1) << count); ++bits) {
    std::vector<std::size_t> set;
    for (std::size_t i = 0; i < count; ++i)
      if (bits >> i & 1) set.push_back(i);
    if (set.size() > t.size() || !solve_subset(f, t, set, x)) continue;
    double error = 0, whole = 0;
    for (std::size_t s = 0; s < t.size(); ++s) {
      double sum = -t[s];
      for (std::size_t i = 0; i < set.size(); ++i) sum += f[s][set[i]] * x[i];
      error += sum * sum;
      whole += t[s] * t[s];
    }
    error += 2e-5 * whole * double(set.size());
    if (error < best) best = error, best_x = x, best_set = set;
  }
  for (std::size_t i = 0; i < best_set.size(); ++i)
    if (best_x[i] > 0) rates[names[best_set[i]]] = best_x[i] / scale[best_set[i]];
  for (const auto& [name, least] : floor.items())
    if (std::find(names.begin(), names.end(), name) != names.end())
      rates[name] = rates.value(name, 0.0) + least.get<double>();
  return rates;
}

nlohmann::json solve_floor(const std::string& model, const nlohmann::json& raw_rates) {
  nlohmann::json floor = nlohmann::json::object();
  if (!raw_rates.is_object()) return floor;
  const auto is = [&](const char* family) { return model.rfind(family, 0) == 0; };
  const bool fp64 =
      model.find("emulated") == std::string::npos && model.find("mixed") == std::string::npos;
  if ((is("dense") || is("band")) && fp64 && raw_rates.contains("gemm_gflops")) {
    double most = 0;
    for (const auto& rate : raw_rates["gemm_gflops"]) most = std::max(most, rate[1].get<double>());
    if (most > 0) floor["flops"] = 1 / most;
  }
  const double memory = raw_rates.value("memory_read_gb_per_s", 0.0);
  if (is("cg") && memory > 0)
    floor["matrix"] = floor["preconditioner"] = floor["vectors"] = 1 / memory;
  return floor;
}

// --- amounts -------------------------------------------------------------------------------------

Work dense_work(const DenseWork& w) {
  const double n = double(w.n), right = double(w.right), ranks = w.ranks, b = double(w.block);
  const double slots = std::ceil(n / ranks), panels = std::ceil(n / b);
  const double update = w.inverse ? 2 * n * n * slots : n * n * slots + 2 * n * slots * right;
  const double exact = w.inverse && w.n <= 4096 ? n * n * slots : 0;
  Work work;
  work.model = std::string(w.inverse ? "dense invert" : "dense solve") + ", " + w.precision +
               (w.tournament ? ", tournament" : "");
  work.read = bytes(8 * slots * n);
  work.solve = {{"start", 1},
                {"panels", panels},
                {"columns", n},
                {"panel", giga * n * b * slots},
                {"flops", giga * update},
                {"traffic", giga * update / b},
                {"shared", giga * n * (n + right)}};
  work.check = {{"start", 1}, {"bytes", giga * 8 * slots * n}, {"exact", giga * exact}};
  if (!w.check) work.check = {{"start", 1}, {"norms", giga * 8 * slots * n}};
  work.write = bytes(8 * slots * (w.inverse ? n : right));
  return work;
}

Work textbook_work(Index order, bool check) {
  const double n = double(order);
  Work work;
  work.model = "dense invert, textbook";
  work.read = bytes(8 * n * n);
  work.solve = {{"start", 1}, {"columns", n}, {"flops", giga * n * n * n}};
  work.check = {{"start", 1},
                {"bytes", giga * 8 * n * n},
                {"exact", check && order <= 4096 ? giga * n * n * n : 0}};
  work.write = bytes(8 * n * n);
  return work;
}

Work cramer_work(Index order, Index right) {
  const double n = double(order);
  Work work;
  work.model = "dense solve, cramer";
  work.read = work.check = bytes(8 * n * n);
  work.solve = {{"start", 1}, {"flops", giga * n * n * n * (1 + n * double(right))}};
  work.write = bytes(8 * n * double(right));
  return work;
}

Work bit_work(const BitWork& w) {
  const double n = double(w.rows), ranks = w.ranks, b = double(w.block);
  const double words = std::ceil(double(w.columns) / 64) + std::ceil(double(w.right) / 64) + 1;
  const double slots = std::ceil(n / ranks), r = double(std::min(w.rows, w.columns));
  const bool echelon = w.command == "rank" || w.command == "echelon";
  // Words that are updated: those right of the panel; in echelon form of the rows without a pivot.
  const double area = w.command == "inverse" ? slots * r * words
                      : echelon
                          ? (r * n * words - r * r / 2 * (words + n / 64) + r * r * r / 192) / ranks
                          : slots * (r * words - r * r / 128);
  Work work;
  work.model = "gf2 " + (echelon ? std::string("echelon") : w.command) + ", " + w.method;
  work.read = bytes(8 * slots * (words - 1));
  work.solve = {{"start", 1},
                {"panels", std::ceil(r / b)},
                {"columns", r},
                {"panel", giga * r * b},
                {"search", giga * r * slots / 64},
                {"words", giga * area},
                {"traffic", giga * area / b},
                {"shared", giga * r * words}};
  if (w.command == "kernel")
    work.solve.emplace_back("basis", giga * double(std::max<Index>(0, w.columns - w.rows)) * words);
  work.check = {{"start", 1}, {"columns", r}, {"bytes", giga * 8 * slots * (words - 1)}};
  if (!w.check) work.check = {{"start", 1}, {"columns", r}};
  const double written = !w.output              ? 0
                         : w.command == "rank"  ? 0
                         : w.command == "solve" ? double(w.columns) * std::ceil(w.right / 64.0)
                         : w.command == "kernel"
                             ? double(std::max<Index>(0, w.columns - w.rows)) * (words - 1)
                             : n * (words - 1);
  work.write = bytes(8 * written / ranks);
  work.write.emplace_back("columns", r);
  return work;
}

Work bit_product_work(Index rows, Index inner, Index columns, int levels, int ranks,
                      const std::string& method, bool check) {
  const double words = std::ceil(double(columns) / 64), inner_words = std::ceil(double(inner) / 64);
  const double slots = std::ceil(double(rows) / ranks);
  const double kept = std::pow(7.0 / 8.0, levels);
  const double left = slots * inner_words, right = double(inner) * words, out = slots * words;
  Work work;
  work.model = "gf2 multiply, " + method;
  work.read = bytes(8 * (left + right / ranks));
  work.solve = {{"start", 1},
                {"words", giga * slots * double(inner) * words * kept},
                {"levels", giga * levels * (left + right + out)},
                {"shared", giga * right},
                {"traffic", giga * (left + out)}};
  work.check = check ? bytes(8 * (left + out + right / ranks)) : Amounts{{"start", 1}};
  work.write = bytes(8 * out);
  return work;
}

Work band_work(const BandAmounts& w) {
  const double n = double(w.n), m = double(w.half_bandwidth), b = double(w.width);
  const double ranks = w.ranks, stored = n * (m + 1) / ranks, rhs = double(w.nrhs);
  const double columns = double(w.chain) * b;  // of the longest chain
  const bool streamed = w.method == "streamed";
  Work work;
  work.model = w.command + ", " + w.method;
  work.read = bytes(8 * stored);
  if (streamed) work.read = bytes(8 * n * rhs);
  work.solve = {{"start", 1}};
  if (w.factored)
    work.read = bytes(8 * stored);
  else
    work.solve.insert(work.solve.end(), {{"panels", double(w.chain)},
                                         {"diagonal", giga * columns * b * b},
                                         {"panel", giga * columns * b * m / ranks},
                                         {"flops", giga * w.flops},
                                         {"traffic", giga * w.flops / b},
                                         {"shared", giga * n * (m + 1)}});
  if (w.nrhs > 0)
    work.solve.insert(work.solve.end(), {{"substitution", giga * n * (m + 1) * (1 + rhs / 8)},
                                         {"substitution panels", columns / b}});
  work.check = w.check ? bytes(8 * stored) : Amounts{{"start", 0}};
  work.write = bytes(w.command == "band factor" ? 8 * stored : 8 * n * rhs / ranks);
  return work;
}

Work iteration_work(const IterationWork& w) {
  Work work;
  work.model = "cg " + w.form + ", " + w.method;
  work.read = bytes(w.file_bytes / w.ranks);
  work.solve = {
      {"start", 1}, {"setup", giga * w.matrix_bytes}, {"rows", giga * 8 * w.rows * double(w.nrhs)}};
  const double passes = double(w.passes);
  work.iteration = {{"steps", passes},
                    {"matrix", giga * w.matrix_bytes * passes},
                    {"preconditioner", giga * w.extra_bytes * passes},
                    {"vectors", giga * 80 * w.rows * double(w.nrhs)},
                    {"shared", giga * w.shared * double(w.nrhs)}};
  work.iterations = w.iterations;
  work.check = {{"start", 1}, {"bytes", giga * w.matrix_bytes}};
  work.write = bytes(8.0 * double(w.n) * double(w.nrhs) / w.ranks);
  return work;
}

}  // namespace terrace
