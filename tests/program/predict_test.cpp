// Seconds from rates: the formula, figures of an H200 that were measured, and that every method has
// an estimate.
#include "src/program/predict.hpp"

#include <cmath>

#include "tests/support/test.hpp"

using namespace terrace;

namespace {

const Machine gpu{1, true, 16};

double solve_seconds(const Work& work, const Machine& on) {
  return predict(work, built_in_rates(on.device, on.threads)).solve;
}
/// Within a factor of two.
void near(const Work& work, double measured) {
  const double solve = solve_seconds(work, gpu);
  INFO(work.model << ": " << solve << " predicted, " << measured << " measured");
  CHECK(solve > measured / 2);
  CHECK(solve < measured * 2);
}

BitWork bits(const Machine& on, const std::string& command, const std::string& method, Index n) {
  return {on, command, method, n, n, 0, on.device && method != "tables" && n >= 65536 ? 4096 : 512};
}
BandAmounts band(const Machine& on, const std::string& method, Index n, Index m, Index chain,
                 double flops, Index nrhs = 0) {
  return {on, nrhs > 0 ? "band solve" : "band factor", method, n, m, 64, nrhs, chain, flops};
}

}  // namespace

TEST_CASE("seconds are amounts by rates and efficiencies", "[predict]") {
  Rates rates = built_in_rates(false, 1);
  rates[Rate::product] = 100;
  rates[Rate::memory] = 10;
  rates[Rate::start] = 4;
  Work work;
  work.read = {{Rate::memory, 50, 0.5}};
  work.solve = {{Rate::product, 300}, {Rate::second, 2}, {Rate::integers, 0, 0}};
  Seconds s = predict(work, rates);
  CHECK((s.start == 0.25 && s.read == 10 && s.solve == 5 && s.total() == 15.25));
  work.iteration = {{Rate::memory, 20}};
  work.iterations = 3;
  s = predict(work, rates);
  CHECK((s.iteration == 2 && s.solve == 11));
  work.beside = {{Rate::memory, 100}};
  CHECK(predict(work, rates).solve == 11);
  work.beside = {{Rate::memory, 120}};
  CHECK(predict(work, rates).solve == 12);
}

TEST_CASE("steps are replayed on two lanes, slower beside an update", "[predict]") {
  Rates rates;
  rates[Rate::second] = 1;
  const auto seconds = [](double s) { return Terms{{Rate::second, s}}; };
  Steps steps{2, [&](Index k) {
                return Step{seconds(k == 0 ? 1 : 4), seconds(0.5), seconds(0.25), seconds(3)};
              }};
  // choose 1, share 0.5, next 0.25: 1.75; rest until 4.75, beside 3 of which 2 of choose 4 are done,
  // the other 2 until 6.75; share 7.25; next 7.5; rest 10.5.
  CHECK(replay(steps, rates) == 10.5);
  steps.share_after_update = true;
  CHECK(replay(steps, rates) == 10.5);
  // choose(1) begins at 1.5 + 1.5 * 0.25, and ends at 1.875 + 2.625 + (4 - 2.625 / 1.5) = 6.75.
  steps.next_ahead = true;
  CHECK(replay(steps, rates) == 10.25);
}

TEST_CASE("many ranks are many hosts, which speak by messages of more hops", "[predict]") {
  const auto seconds = [](int ranks, int per_host) {
    BitWork w = bits({ranks, true, 1, per_host}, "echelon", "tensor cores", 131072);
    return predict(bit_work(w), built_in_rates(true, 1)).solve;
  };
  CHECK(seconds(8, 8) < seconds(8, 1));
  CHECK(seconds(64, 8) < seconds(64, 2));
}

TEST_CASE("every method has an estimate on every machine", "[predict]") {
  const auto good = [](const Work& work, const Machine& on) {
    const Seconds s = predict(work, built_in_rates(on.device, on.threads));
    INFO(work.model << ": " << s.solve << " s");
    CHECK((s.solve > 0 && std::isfinite(s.total()) && s.total() < 1e6));
    const bool beside = work.model.ends_with("streamed");  // reads while it factors
    CHECK(((s.read > 0 || beside) && s.check >= 0 && s.write >= 0));
    CHECK(!work.model.empty());
  };
  for (const Machine& on :
       {Machine{1, false, 1}, Machine{4, false, 2}, Machine{1, true, 8}, Machine{4, true, 8}}) {
    for (const bool inverse : {true, false})
      for (const bool tournament : {true, false})
        for (const bool emulated : {true, false})
          good(dense_work({on, "gauss-jordan", 3000, 1, 128, inverse, tournament, emulated}), on);
    good(dense_work({on, "textbook", 300}), on);
    good(dense_work({on, "cramer", 12, 1, 1, false}), on);
    for (const char* command : {"rref", "echelon", "rank", "solve", "kernel", "inverse"})
      for (const char* method : {"tensor cores", "tables", "columns"}) {
        BitWork w = bits(on, command, method, 9000);
        w.right = 64;
        good(bit_work(w), on);
      }
    for (const char* method : {"tensor cores", "tables"})
      good(bit_product_work({on, method, 4096, 4096, 4096, 0, 1}), on);
    for (const char* method : {"tile-columns", "one-end", "two-ends", "partition", "streamed",
                               "streamed, in a window", "at once", "mixed"})
      for (const Index nrhs : {0, 2})
        good(band_work(band(on, method, 100000, 200, 1600, 4e9, nrhs)), on);
    for (const char* form : {"dense triangle", "dense rows", "band", "csr"})
      for (const char* method : {"classic", "single-reduction", "pipelined"})
        for (const char* with : {"none", "jacobi", "block-jacobi", "ic", "chebyshev"}) {
          IterationWork w;
          w.on = on, w.form = form, w.method = method, w.preconditioner = with, w.n = 10000;
          w.rows = w.shared = w.chain = 10000;
          w.matrix_bytes = w.file_bytes = w.preconditioner_bytes = 1e7;
          w.iterations = 50;
          good(iteration_work(w), on);
        }
  }
}

TEST_CASE("more look-ups, or tables for all, take longer", "[predict]") {
  for (const Machine& on : {Machine{1, false, 2}, gpu, Machine{2, false, 1}}) {
    const auto seconds = [&](Index k, bool stored) {
      BitWork w = bits(on, "rref", "tables", 4096);
      w.k = k;
      w.stored = stored;
      const BitProductWork p{on, "tables", 4096, 4096, 4096, k};
      return std::pair(solve_seconds(bit_work(w), on), solve_seconds(bit_product_work(p), on));
    };
    const auto plain = seconds(0, false);
    CHECK(seconds(8, false) == plain);
    for (const auto& [k, stored] : {std::pair(1, false), {4, false}, {14, false}, {8, true}}) {
      INFO("k = " << k << (stored ? ", stored" : ""));
      CHECK(seconds(k, stored).first > plain.first);
      if (!stored) CHECK(seconds(k, stored).second > plain.second);
    }
    CHECK(seconds(1, false).first > seconds(4, false).first);
    CHECK(seconds(10, true).first > seconds(8, true).first);
  }
}

TEST_CASE("ranks share the work and speak to each other", "[predict]") {
  const auto amount = [](const Work& work, Rate rate) {
    double sum = 0;
    for (const Term& t : work.solve)
      if (t.rate == rate) sum += t.amount;
    return sum;
  };
  const auto dense = [](int ranks) {
    return dense_work({{ranks, false, 1}, "gauss-jordan", 4096});
  };
  CHECK(amount(dense(4), Rate::product) == amount(dense(2), Rate::product) / 2);
  CHECK(amount(dense(1), Rate::exchange) == 0);
  CHECK(amount(dense(2), Rate::exchange) > 0);
  CHECK(amount(dense(2), Rate::message) > 0);
}

TEST_CASE("an H200 takes as long as was measured", "[predict]") {
  // One GPU, November 2026; the smaller ones are first solves of a process.
  const auto dense = [](Index n, bool inverse) {
    return dense_work({gpu, "gauss-jordan", n, inverse ? 0 : 1, 512, inverse});
  };
  near(dense(3000, true), 0.066);
  near(dense(11000, true), 0.111);
  near(dense(32768, true), 1.52);
  near(dense(9000, false), 0.097);
  near(dense(32768, false), 0.80);
  near(dense_work({gpu, "gauss-jordan", 65536, 0, 512, true, false, true}), 9.5);
  near(bit_work(bits(gpu, "rref", "tensor cores", 12000)), 0.016);
  near(bit_work(bits(gpu, "rref", "tensor cores", 70000)), 0.057);
  near(bit_work(bits(gpu, "rref", "tensor cores", 262144)), 1.84);
  near(bit_work(bits(gpu, "rank", "tensor cores", 50000)), 0.040);
  near(bit_work(bits(gpu, "inverse", "tensor cores", 131072)), 0.508);
  near(bit_work(bits(gpu, "echelon", "tables", 131072)), 0.880);
  near(bit_work(bits(gpu, "echelon", "columns", 131072)), 36);
  near(bit_product_work({gpu, "tensor cores", 131072, 131072, 131072, 0, 2}), 0.326);
  near(band_work(band(gpu, "partition", 4000000, 128, 750, 2.6e11)), 0.0260);
  near(band_work(band(gpu, "two-ends", 1000000, 2000, 7812, 4e12)), 0.128);
  near(band_work(band(gpu, "at once", 200000, 32000, 3125, 2.05e14)), 4.19);
  near(band_work(band(gpu, "tile-columns", 200000, 2000, 3125, 8e11)), 0.315);
  near(band_work(band(gpu, "mixed", 400000, 8000, 6250, 2.56e13, 1)), 0.203);
  near(band_work(band(gpu, "streamed", 1000000, 1000, 7812, 1e12)), 0.164);
  const auto iteration = [](const char* form, double n, double bytes, double measured) {
    IterationWork w;
    w.on = gpu, w.form = form, w.method = "classic", w.preconditioner = "none", w.n = Index(n);
    w.matrix_bytes = bytes;
    w.rows = n;
    const double seconds = predict(iteration_work(w), built_in_rates(true, 1)).iteration;
    INFO(form << ": " << seconds << " predicted, " << measured << " measured");
    CHECK(seconds > measured / 2);
    CHECK(seconds < measured * 2);
  };
  iteration("dense triangle", 8192, 2.7e8, 79e-6);
  iteration("dense triangle", 65536, 1.7e10, 3.89e-3);
  iteration("band", 4e6, 3.2e9, 0.985e-3);
  iteration("csr", 1.7e7, 5.6e9, 1.79e-3);
}
