// What all ways of band solve share: the system, its rows, its rate.
#pragma once
#include "distrib/agree.hpp"
#include "src/commands/band_run.hpp"

namespace terrace {

/// The system and where its solution goes.
struct BandSystem {
  const io::BandInput& matrix;
  const io::DenseInput& rhs;
  const io::BandInput* factor = nullptr;  ///< stored by band factor, or none
  io::Output* output = nullptr;
  BandPlaces places{};
  std::string scratch{};  ///< folder of a streamed factor
  [[nodiscard]] Index nrhs() const { return rhs.columns(); }
};

/// Rows `position` .. of this rank's `rows` are written from the host.
inline void write_solution(Run& run, const BandSystem& system, const std::vector<Range>& ranges,
                           const std::vector<double>& rows) {
  run.phase("write", [&] {
    const Index nrhs = system.nrhs();
    const io::Source<double> source = [&](Index position, Index count, double* out) {
      std::copy_n(rows.begin() + position * nrhs, count * nrhs, out);
    };
    system.output->write<double>("x", system.matrix.n(), system.rhs.is_vector() ? -1 : nrhs, ranges,
                                 source);
    system.output->commit(run.attributes());
  });
}

inline void note_rate(Run& run, const BandShape& s, Index nrhs, bool factored) {
  double flops = band_solve_flops(s.n, s.half_bandwidth, nrhs);
  if (factored) flops += band_factor_flops(s.n, s.half_bandwidth);
  run.rate(flops * 1e-9 / run.seconds("solve"), "GFLOP/s");
}

inline void say_solved(const Run& run, const BandShape& s, Index nrhs) {
  run.say(fmt::format(
      "solved n = {}, half-bandwidth {}, {} right-hand sides, in {:.3f} s, {:.4g} GFLOP/s", s.n,
      s.half_bandwidth, nrhs, run.seconds("solve"), run.report["rate"]["value"].get<double>()));
  if (run.report.contains("residual"))
    run.say(fmt::format("residual {:.3g} (scaled; below {} is good)",
                        run.report["residual"].get<double>(), kBandPass));
}

/// Own rows of the right-hand sides, slots x nrhs.
inline std::vector<double> read_rows(const Control& control, const io::DenseInput& input,
                                     const BandShape& s) {
  const BlockCyclic rows{s.n, s.width, control.size()};
  const BlockCyclic padded{s.padded(), s.width, control.size()};
  const Index nrhs = input.columns();
  std::vector<double> b = collectively(control, [&] {
    return std::vector<double>(std::size_t(padded.slots(control.rank()) * nrhs), 0.0);
  });
  input.read(control, rows.ranges(control.rank()),
             [&](Index position, Index count, const double* data) {
               std::copy(data, data + count * nrhs, b.begin() + position * nrhs);
             });
  return b;
}

/// Rows `rows` of the right-hand sides.
inline std::vector<double> read_range(const Control& control, const io::DenseInput& input,
                                      Range rows) {
  const Index nrhs = input.columns();
  std::vector<double> b =
      collectively(control, [&] { return std::vector<double>(std::size_t(rows.count * nrhs)); });
  input.read(control, {&rows, 1}, [&](Index position, Index count, const double* data) {
    std::copy(data, data + count * nrhs, b.begin() + position * nrhs);
  });
  return b;
}

}  // namespace terrace
