// Fits of rates, against numbers that were put in.
#include "src/program/predict.hpp"

#include "tests/support/test.hpp"

using namespace terrace;

TEST_CASE("rates that made the samples are found again, and predict larger work", "[predict]") {
  const double start = 2e-3, latency = 3e-6, per_flop = 0.05;
  std::vector<Sample> samples;
  const auto amounts = [](double n) {
    return Amounts{{"start", 1}, {"columns", n}, {"flops", 2e-9 * n * n * n}, {"other", n * n}};
  };
  for (const double n : {200.0, 300.0, 450.0, 700.0, 1000.0})
    samples.push_back({amounts(n), start + latency * n + per_flop * 2e-9 * n * n * n});
  const nlohmann::json rates = fit_rates(samples);
  Work work;
  work.solve = amounts(5000);
  const Seconds s = predict(work, {{"solve", rates}});
  const double truth = start + latency * 5000 + per_flop * 2e-9 * 1.25e11;
  CHECK(s.solve > 0.97 * truth);
  CHECK(s.solve < 1.03 * truth);
  CHECK(s.total() == s.solve);
}

TEST_CASE("noise does not make a rate negative", "[predict]") {
  std::vector<Sample> samples;
  double sign = 1;
  for (const double n : {1.0, 2.0, 4.0, 8.0}) {
    samples.push_back({{{"start", 1}, {"a", n}, {"b", n * n}}, n * (1 + 0.1 * sign)});
    sign = -sign;
  }
  const nlohmann::json rates = fit_rates(samples);
  CHECK(!rates.empty());
  for (const auto& [name, rate] : rates.items()) CHECK(rate.get<double>() >= 0);
}

TEST_CASE("no rate falls below the floor, and what is above it is found", "[predict]") {
  // Small solves hide behind their latencies: alone, flops would seem to cost nothing.
  const nlohmann::json floor{{"flops", 2e-5}, {"absent", 1.0}};
  std::vector<Sample> samples;
  for (const double n : {100.0, 200.0, 400.0, 800.0})
    samples.push_back({{{"start", 1}, {"columns", n}, {"flops", 1e-9 * n * n * n}},
                       1e-3 + 3e-6 * n + 2e-5 * 1e-9 * n * n * n});
  const nlohmann::json rates = fit_rates(samples, floor);
  CHECK(rates["flops"].get<double>() >= 2e-5);
  CHECK(rates["flops"].get<double>() < 2.2e-5);
  CHECK(std::abs(rates["columns"].get<double>() - 3e-6) < 1e-7);
  CHECK(!rates.contains("absent"));
  const nlohmann::json raw{{"gemm_gflops", {{512, 1e4}, {2048, 5e4}}},
                           {"memory_read_gb_per_s", 4e3}};
  CHECK(solve_floor("band solve, two-ends", raw)["flops"].get<double>() == 1 / 5e4);
  CHECK(solve_floor("cg csr, classic, none", raw)["matrix"].get<double>() == 1 / 4e3);
  for (const char* none : {"band solve, mixed", "dense invert, emulated", "gf2 rref, tensor cores"})
    CHECK(solve_floor(none, raw).empty());
  CHECK(solve_floor("dense invert, fp64", {}).empty());
}

TEST_CASE("phases that do the same work share their rates", "[predict]") {
  const auto shared = [](const char* a, const char* b, const char* phase) {
    return rates_shared_by(a, phase) == rates_shared_by(b, phase);
  };
  CHECK(shared("band solve, two-ends", "band solve, partition", "read"));
  CHECK(shared("band solve, two-ends", "band factor, at once", "write"));
  CHECK(shared("band solve, two-ends", "band solve, partition", "check"));
  CHECK(!shared("band solve, two-ends", "band factor, at once", "check"));
  CHECK(!shared("band solve, two-ends", "band solve, partition", "solve"));
  CHECK(!shared("band solve, two-ends", "band solve, streamed", "read"));
  CHECK(shared("dense invert, fp64", "dense solve, emulated", "read"));
  CHECK(!shared("dense invert, fp64", "dense solve, fp64", "check"));
  CHECK(shared("cg csr, classic, none", "cg csr, pipelined, jacobi", "read"));
  CHECK(!shared("cg csr, classic, none", "cg band, classic, none", "read"));
  CHECK(!shared("gf2 rref, tensor cores", "dense invert, fp64", "read"));
  Work work;
  work.read = {{"bytes", 2.0}};
  CHECK(predict(work, {{"read", {{"bytes", 0.5}}}, {"begin", 0.25}}).total() == 1.25);
}

TEST_CASE("no samples, or samples without time, give no rates", "[predict]") {
  CHECK(fit_rates({}).empty());
  CHECK(fit_rates({{{{"start", 1}}, 0.0}}).empty());
}

TEST_CASE("amounts travel through a report", "[predict]") {
  const Work work = dense_work({3000, 2, 144, 2, false, false, true, "fp64"});
  const Work again = Work::from(work.json());
  CHECK(again.model == work.model);
  nlohmann::json rates;
  for (const auto& [name, amount] : work.solve) rates["solve"][name] = 1.0;
  CHECK(predict(again, rates).solve == predict(work, rates).solve);
  CHECK(predict(work, rates).solve > 0);
}

TEST_CASE("twice the ranks halve what they share", "[predict]") {
  const auto flops = [](int ranks) {
    for (const auto& [name, value] :
         dense_work({4096, 0, 128, ranks, true, false, true, "fp64"}).solve)
      if (name == "flops") return value;
    return 0.0;
  };
  CHECK(flops(4) == flops(2) / 2);
}

TEST_CASE("an H200's first solves are within 30 % of what the built-in rates say", "[predict]") {
  // Seconds of whole runs on one GPU, jobs/results/plan.md.
  const auto near = [](const Work& work, double measured) {
    const double solve = predict(work, built_in_rates(work.model, true, 1)).solve;
    INFO(work.model << ": " << solve << " predicted, " << measured << " measured");
    CHECK(solve > 0.7 * measured);
    CHECK(solve < 1.3 * measured);
  };
  const auto dense = [](Index n, bool inverse) {
    return dense_work({n, inverse ? 0 : 1, 512, 1, inverse, false, true, "fp64"});
  };
  near(dense(3000, true), 0.068);
  near(dense(6000, true), 0.086);
  near(dense(11000, true), 0.132);
  near(dense(9000, false), 0.097);
  const auto bits = [](const char* command, Index n) {
    return bit_work({command, "products", n, n, 0, 1024, 1, true, true});
  };
  near(bits("rref", 12000), 0.016);
  near(bits("rref", 30000), 0.024);
  near(bits("rref", 70000), 0.062);
  near(bits("rank", 50000), 0.040);
}

TEST_CASE("short calibration solves leave a device's rates to the built-in ones", "[predict]") {
  const std::string model = "gf2 rref, products";
  nlohmann::json measured{{"read", {{"start", 0.1}}},
                          {"solve", {{"start", 0.004}, {"shared", 7.0}}},
                          {"first", 0.02},
                          {"longest_solve_seconds", 0.006}};
  const nlohmann::json known = built_in_rates(model, true, 1);
  const nlohmann::json rates = trusted_rates(measured, model);
  CHECK(rates["read"] == measured["read"]);
  CHECK(rates["solve"]["words"] == known["solve"]["words"]);
  CHECK(rates["solve"]["shared"] == 7.0);
  CHECK(rates["first"] == 0.02);
  measured["longest_solve_seconds"] = 0.2;
  CHECK(trusted_rates(measured, model) == measured);
}
