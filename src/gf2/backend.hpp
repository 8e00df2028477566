// CPU or GPU for work over GF(2).
#pragma once

#include "src/frame/backend_choice.hpp"

namespace terrace::gf2 {

/// For --backend auto: an elimination of a rows x columns matrix; a product of rows x inner and
/// inner x columns.
BackendHint elimination_hint(Index rows, Index columns);
BackendHint product_hint(Index rows, Index inner, Index columns);

}  // namespace terrace::gf2
