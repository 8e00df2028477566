// What band factor and band solve share: options, inputs and output.
#pragma once
#include <fmt/core.h>

#include <optional>
#include <string>

#include "distrib/agree.hpp"
#include "io/input.hpp"
#include "io/output.hpp"
#include "src/band/system.hpp"
#include "src/program/register.hpp"

namespace terrace::band {

struct BandOptions {
  std::string matrix, rhs, factor, scratch;
  Index parts = 0;
  BandPlaces places;
};

/// A dense matrix as a band of all its columns.
struct DenseAsBand {
  /// Once it is read: throws where it is not Cholesky's, or not symmetric.
  std::function<void(Index failed_minor)> judge;
  /// As SymmetricMatrix has it (src/dense/cholesky.hpp); `probes`: its columns.
  std::function<double(std::span<const Range>, const std::function<void(std::vector<double>&)>&)>
      reciprocal_condition;
  Index probes = 0;
};

struct BandFiles {
  BandReader matrix;
  io::Rereader reread;                ///< of the matrix, or none
  io::Location location;              ///< the matrix's
  std::optional<DenseAsBand> dense;   ///< none: a band matrix
  std::optional<io::DenseInput> rhs;  ///< none: the factor is wanted
  BandReader factor;                  ///< stored, or none
  std::optional<io::Output> output;   ///< none with --plan
};
/// `input` has to outlive what is returned.
BandReader reader_of(const Run& run, const io::BandInput& input);

/// Of settings: --precision mixed, which FP64 goes on for.
inline constexpr const char* kNotMixed = "fp64 instead of mixed";
/// With --restart, what is left open is as the interrupted run had it: method, parts, width.
void adopt_band_settings(Run& run, BandRequest& request);
/// --scratch-dir goes with streamed; `auto` may come to it.
void check_scratch(const BandOptions& options, const BandRequest& request);

void band_solve(Run& run, const BandOptions& options);
/// Through all phases, once the files are open; completes the request.
void conduct_band(Run& run, BandFiles& files, const BandOptions& options, BandRequest& request);

}  // namespace terrace::band
