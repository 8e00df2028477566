// The hybrid algorithm of Khimich and Baranov 2013: parts of a factorization with tile columns that
// run on the CPU while the matrix is in the memory of a GPU, or a window of it is
// (src/band/window.hpp).
#pragma once
#include "src/band/tile_columns.hpp"

namespace terrace::band {

struct BandRequest;

/// Which processor takes a part of the work.
struct BandPlaces {
  std::string diagonal, substitution;  ///< "gpu", "cpu" or empty: the backend's own
};
/// Throws a usage error on a name that the backend does not have: on the CPU backend "cpu" is what
/// is done anyway, and "gpu" is refused.
void check_places(Cpu, const BandPlaces& places);
void check_places(Cuda, const BandPlaces& places);

/// Where places are named the method is tile-columns, or streamed tile column by tile column: any
/// other one is a usage error.
void adopt_places(const BandPlaces& places, BandRequest& request);

/// Room for diagonal blocks on the host: band_cholesky() then factors them there.
PinnedBuffer<double> band_host_diagonal(const BandShape& shape);

/// band_factor_diagonal() by the CPU: w^2 numbers to the host and back through `room`. The host
/// waits for the lane once a tile column.
template <class B>
void band_factor_diagonal_on_host(const Stream<B>& lane, const BandShape& shape, Index k,
                                  View<double, B> tile, View<double, B> status,
                                  const PinnedBuffer<double>& room);

/// What band_substitute_on_host() allocates: two tile columns in pinned memory, the right-hand
/// sides on the host, and a communicator of the hosts. Collective.
template <class B>
struct HostSubstitution {
  Context<Cpu> host;
  PinnedBuffer<double> tiles;
  BandVectors<Cpu> x;
  Stream<B> lane;  ///< brings tile columns
  HostSubstitution(Context<B>& context, const BandShape& shape, Index nrhs);
};

/// band_substitute() by the CPU. Tile columns of L come to the host one after the other, each
/// twice, the next one while one is at work. Bits are those of the CPU backend.
template <class B>
void band_substitute_on_host(Context<B>& context, const BandTiles<B>& l, BandVectors<B>& x,
                             HostSubstitution<B>& work, Progress& progress);

}  // namespace terrace::band
