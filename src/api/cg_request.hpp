// The caller's options of conjugate gradients, as the solver takes them.
#pragma once
#include <vector>

#include "distrib/agree.hpp"
#include "src/api/terrace/cg.hpp"
#include "src/cg/system.hpp"

namespace terrace::api::cg {

/// What a solve takes from each rank alike; columns of b and of x.
std::vector<Alike> alike(const Options& options, Index right, Index left);

/// Throws an agreed Error(usage) for what is unknown or out of range. `entries`: of a band or of CSR rows
/// are at hand.
terrace::cg::CgRequest request_of(const Options& options, bool dense, bool entries);

}  // namespace terrace::api::cg
