// What remains of the device interface where CUDA is not built.
#include "kernels/bits_columns.hpp"
#include "kernels/bits_product.hpp"

namespace terrace {

bool has_bit_tensor_cores() { return false; }
RowTexture::RowTexture(const Word*, Index) {}
RowTexture::~RowTexture() = default;

}  // namespace terrace
