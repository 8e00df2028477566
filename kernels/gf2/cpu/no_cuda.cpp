// What remains of the device interface where CUDA is not built.
#include "kernels/gf2/columns.hpp"
#include "kernels/gf2/full_panel.hpp"
#include "kernels/gf2/product.hpp"

namespace terrace::gf2 {

bool has_bit_tensor_cores() { return false; }
template <>
bool has_full_panels<Cuda>() {
  return false;
}
RowTexture::RowTexture(const Word*, Index) {}
RowTexture::~RowTexture() = default;

}  // namespace terrace::gf2
