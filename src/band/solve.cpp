// Forward and backward substitution: the rows below a tile column travel with it.
#include "src/band/substitution.hpp"

namespace terrace::band {

template <class B>
BandVectors<B> band_vectors(Context<B>& context, const BandShape& s, Index nrhs) {
  BandVectors<B> x{nrhs, {s.padded(), s.width, context.size()}, {}, {}};
  x.data = Buffer<double, B>(x.rows.slots(context.rank()) * nrhs);
  x.window = Buffer<double, B>((context.size() > 1 ? s.reach + s.width : s.padded()) * nrhs);
  fill_zero(context.ahead, x.data.view());
  context.ahead.synchronize();
  return x;
}

template <class B>
void band_substitute(Context<B>& context, const BandTiles<B>& l, BandVectors<B>& x,
                     Progress& progress) {
  substitute(context, l, x, progress);
}

#define TERRACE_INSTANTIATE(B)                                                \
  template BandVectors<B> band_vectors(Context<B>&, const BandShape&, Index); \
  template void band_substitute(Context<B>&, const BandTiles<B>&, BandVectors<B>&, Progress&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
