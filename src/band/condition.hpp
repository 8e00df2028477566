// What a check of the band solver says of the condition, at no cost beside the check.
#pragma once
#include "src/band/tile_columns.hpp"

namespace terrace {

template <class B>
struct BandStream;

/// As band_residual() without the last argument. `reciprocal`: at least 1 / (||A|| ||A^-1||),
/// infinity norms, as ||A^-1|| is at least ||x|| / ||b||; near it for a b that no one chose.
template <class B>
double band_residual(Context<B>& context, const BandProblem<B>& a, const BlockCyclic& rows,
                     std::span<const double> x, std::span<const double> b, Index nrhs,
                     double& reciprocal);
template <class B>
double band_residual(Context<B>& context, const BandProblem<B>& a, const Range& rows,
                     std::span<const double> x, std::span<const double> b, Index nrhs,
                     double& reciprocal);

/// As band_factor_residual() without the last argument. `reciprocal`: at least 1 / (||A||
/// ||A^-1||), as the least eigenvalue is at most the square of any diagonal entry of the factor.
template <class B>
double band_factor_residual(Context<B>& context, const BandProblem<B>& a, const BandTiles<B>& l,
                            Word seed, double& reciprocal);
template <class B>
double band_factor_residual(Context<B>& context, const BandProblem<B>& a, const BandShape& shape,
                            const TileAt<B>& tile, Word seed, double& reciprocal);
template <class B>
double band_factor_residual(Context<B>& context, const BandProblem<B>& a, const BandStream<B>& l,
                            Word seed, double& reciprocal);

}  // namespace terrace
