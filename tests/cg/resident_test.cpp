#include "kernels/cg/resident.hpp"

#include <cmath>

#include "kernels/base/random.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::cg;

TEST_CASE("only systems that stay on the chip of a device are taken") {
  const bool device = cuda_device_count() > 0;
  CHECK(!resident_cg_fits(0));
  CHECK(!resident_cg_fits(100000));
  if (!device) CHECK(!resident_cg_fits(100));
}

#if TERRACE_WITH_CUDA
namespace {

using Values = std::vector<double>;

/// A dense symmetric system, its textbook iteration, and the same on the device.
struct System {
  Index n, padded;
  Values a, d, b;
  struct Row {
    double pq = 0, pp = 0, rr = 0, rz = 0;
  };
  struct State {
    Values x, r, p;
    std::vector<Row> rows{Row{}};
  };

  System(Index order, bool jacobi, double shift)
      : n(order), padded((order + 255) / 256 * 256), a(std::size_t(order * order)) {
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j <= i; ++j) {
        const double v =
            i == j ? shift + std::fabs(random_uniform(3, i, i)) : random_uniform(3, i, j);
        a[std::size_t(i * n + j)] = a[std::size_t(j * n + i)] = v;
      }
    for (Index i = 0; i < n; ++i) {
      if (jacobi) d.push_back(1 / a[std::size_t(i * n + i)]);
      b.push_back(random_uniform(4, i, 0));
    }
  }
  [[nodiscard]] double scale(Index i) const { return d.empty() ? 1.0 : d[std::size_t(i)]; }
  [[nodiscard]] State begin() const {
    State s{Values(std::size_t(padded)), Values(std::size_t(padded)), Values(std::size_t(padded))};
    for (Index i = 0; i < n; ++i) {
      s.r[std::size_t(i)] = b[std::size_t(i)];
      s.p[std::size_t(i)] = scale(i) * b[std::size_t(i)];
      s.rows[0].rr += s.r[std::size_t(i)] * s.r[std::size_t(i)];
      s.rows[0].rz += s.r[std::size_t(i)] * s.p[std::size_t(i)];
    }
    return s;
  }
  /// One textbook step; the limits are the caller's business.
  void step(State& s) const {
    Row now;
    Values q(std::size_t(n), 0.0);
    for (Index i = 0; i < n; ++i) {
      for (Index j = 0; j < n; ++j)
        q[std::size_t(i)] += a[std::size_t(i * n + j)] * s.p[std::size_t(j)];
      now.pq += s.p[std::size_t(i)] * q[std::size_t(i)];
      now.pp += s.p[std::size_t(i)] * s.p[std::size_t(i)];
    }
    const double alpha = s.rows.back().rz / now.pq;
    for (Index i = 0; i < n; ++i) {
      const auto e = std::size_t(i);
      s.x[e] += alpha * s.p[e];
      s.r[e] -= alpha * q[e];
      now.rr += s.r[e] * s.r[e];
      now.rz += s.r[e] * scale(i) * s.r[e];
    }
    for (Index i = 0; i < n; ++i)
      s.p[std::size_t(i)] =
          scale(i) * s.r[std::size_t(i)] + now.rz / s.rows.back().rz * s.p[std::size_t(i)];
    s.rows.push_back(now);
  }
};

class Device {
 public:
  Device(Context<Cuda>& c, const System& s)
      : context_(c),
        system_(s),
        p_(s.padded),
        x_(s.padded),
        r_(s.padded),
        d_(Index(s.d.size())),
        scratch_(resident_cg_scratch(s.n)) {
    const Index big = s.padded / 256;
    Values tiles(std::size_t(2 * big * (big + 1) * 256 * 64), 0.0);
    std::vector<Index> row, start{0};
    for (Index t = 0; t < big; ++t) {
      row.push_back(t);
      start.push_back(start.back() + 4 * (t + 1));
    }
    for (Index i = 0; i < s.n; ++i)
      for (Index j = 0; j <= i; ++j)
        tiles[std::size_t((start[std::size_t(i / 256)] + j / 64) * 256 * 64 + i % 256 * 64 +
                          j % 64)] = s.a[std::size_t(i * s.n + j)] / (i == j ? 2 : 1);
    a_ = Buffer<double, Cuda>(Index(tiles.size()));
    row_ = Buffer<Index, Cuda>(big);
    start_ = Buffer<Index, Cuda>(big + 1);
    upload(c.ahead, a_.view(), tiles.data());
    upload(c.ahead, row_.view(), row.data());
    upload(c.ahead, start_.view(), start.data());
    if (!s.d.empty()) upload(c.ahead, d_.view(), s.d.data());
    c.ahead.synchronize();
  }
  void put(const System::State& s, Index ring) {
    ring_ = ring;
    rows_ = Buffer<double, Cuda>(ring * stride);
    Values rows(std::size_t(ring * stride), -7.0);
    rows[cg_row::rr] = s.rows[0].rr;
    rows[cg_row::rz] = s.rows[0].rz;
    upload(context_.ahead, rows_.view(), rows.data());
    upload(context_.ahead, x_.view(), s.x.data());
    upload(context_.ahead, r_.view(), s.r.data());
    upload(context_.ahead, p_.view(), s.p.data());
    context_.ahead.synchronize();
  }
  void run(Index first, Index count, CgLimits limits) {
    resident_cg(context_.ahead, {a_, system_.n, row_, start_}, d_, p_, x_, r_,
                {rows_, ring_, stride}, first, count, limits, scratch_);
  }
  [[nodiscard]] System::State get() const {
    System::State s{Values(std::size_t(system_.padded)), Values(std::size_t(system_.padded)),
                    Values(std::size_t(system_.padded))};
    Values rows(std::size_t(rows_.size()));
    download(context_.ahead, s.x.data(), x_.view());
    download(context_.ahead, s.r.data(), r_.view());
    download(context_.ahead, s.p.data(), p_.view());
    download(context_.ahead, rows.data(), rows_.view());
    context_.ahead.synchronize();
    s.rows.clear();
    for (std::size_t k = 0; k < rows.size(); k += stride)
      s.rows.push_back({rows[k], rows[k + 1], rows[k + 2], rows[k + 3]});
    return s;
  }

 private:
  static constexpr Index stride = 6;
  Context<Cuda>& context_;
  const System& system_;
  Buffer<double, Cuda> a_, p_, x_, r_, d_, rows_, scratch_;
  Buffer<Index, Cuda> row_, start_;
  Index ring_ = 0;
};

double distance(const Values& u, const Values& v) {
  double most = 0;
  for (std::size_t i = 0; i < u.size(); ++i) {
    const double error = std::fabs(u[i] - v[i]);
    most = error <= most ? most : error;
  }
  return most;
}
bool same(const System::State& u, const System::State& v) {
  return u.x == v.x && u.r == v.r && u.p == v.p;
}

/// Runs `body` where a device is seen that takes systems.
template <class F>
void on_device(const F& body) {
  Context<Cuda>* context = test::context<Cuda>();
  if (!context) return;
  if (!resident_cg_fits(1)) {
    WARN("this device takes no system");
    return;
  }
  body(*context);
}

}  // namespace

TEST_CASE("iterations in one launch are those of the textbook, CUDA", "[gpu]") {
  on_device([](Context<Cuda>& context) {
    for (const Index n : {1, 2, 63, 64, 65, 255, 256, 257, 600, 1000, 3072, 3392}) {
      for (const bool jacobi : {false, true}) {
        if (jacobi && n > 3072) continue;
        CAPTURE(n, jacobi);
        if (!resident_cg_fits(n)) continue;
        const System system(n, jacobi, 2 + 1.2 * std::sqrt(double(n)));
        const System::State start = system.begin();
        const CgLimits limits{1e-22 * start.rows[0].rr, 0};
        System::State plain = start;
        while (plain.rows.size() < 9 && plain.rows.back().rr > limits.stop) system.step(plain);
        const auto done = Index(plain.rows.size()) - 1;

        Device device(context, system);
        device.put(start, 16);
        device.run(1, std::min<Index>(3, done), limits);
        if (done > 3) device.run(4, done - 3, limits);
        const System::State found = device.get();
        CHECK(distance(found.x, plain.x) < 1e-13);
        if (n > 2) CHECK(distance(found.r, plain.r) < 1e-12);
        if (n > 2) CHECK(distance(found.p, plain.p) < 1e-12);
        for (std::size_t k = 1; k < plain.rows.size(); ++k) {
          const System::Row &u = found.rows[k], &v = plain.rows[k];
          CHECK(u.pq == Approx(v.pq).epsilon(1e-11));
          CHECK(u.pp == Approx(v.pp).epsilon(1e-11));
          CHECK(std::fabs(u.rr - v.rr) <= 1e-11 * v.rr + 1e-28 * start.rows[0].rr);
          CHECK(std::fabs(u.rz - v.rz) <= 1e-11 * v.rz + 1e-28 * start.rows[0].rz);
        }

        device.put(start, 5);  // to the end, twice: the ring goes around
        device.run(1, 100, limits);
        const System::State end = device.get();
        device.put(start, 5);
        device.run(1, 2, limits);
        device.run(3, 98, limits);
        CHECK(same(device.get(), end));
        for (const System::Row& row : end.rows) CHECK(row.rr <= limits.stop);
        double residual = 0;
        for (Index i = 0; i < n; ++i) {
          double sum = system.b[std::size_t(i)];
          for (Index j = 0; j < n; ++j)
            sum -= system.a[std::size_t(i * n + j)] * end.x[std::size_t(j)];
          residual += sum * sum;
        }
        CHECK(residual <= 1e-20 * start.rows[0].rr);
        for (Index i = n; i < system.padded; ++i)
          CHECK((end.x[std::size_t(i)] == 0 && end.r[std::size_t(i)] == 0 &&
                 end.p[std::size_t(i)] == 0));
        device.run(101, 5, limits);  // converged: nothing moves
        CHECK(same(device.get(), end));
      }
    }
  });
}

TEST_CASE("iterations in one launch leave x where they may not step, CUDA", "[gpu]") {
  on_device([](Context<Cuda>& context) {
    for (const Index n : {1, 65, 300, 1000}) {
      CAPTURE(n);
      const System indefinite(n, false, -3 - 2 * std::sqrt(double(n)));
      System::State start = indefinite.begin();
      start.x[0] = 0.5;
      Device device(context, indefinite);
      device.put(start, 8);
      device.run(1, 4, {0, 0});
      System::State found = device.get();
      CHECK(same(found, start));
      for (std::size_t k = 1; k <= 4; ++k) {
        CHECK(found.rows[k].pq < 0);
        CHECK(found.rows[k].rr == start.rows[0].rr);
        CHECK(found.rows[k].rz == start.rows[0].rz);
      }
      CHECK(found.rows[5].rr == -7.0);  // later rows are not touched

      // Singular by its limit, and a residual that is not a number.
      device.put(start, 8);
      device.run(1, 1, {0, std::numeric_limits<double>::max()});
      CHECK(same(device.get(), start));
      start.rows[0].rz = std::nan("");
      device.put(start, 8);
      device.run(1, 2, {0, 0});
      found = device.get();
      CHECK(same(found, start));
      CHECK(std::isnan(found.rows[2].rz));
    }
  });
}
#endif
