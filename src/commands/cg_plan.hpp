// What terrace cg will do with its options: checked, and said for --plan.
#pragma once
#include "src/cg/conjugate_gradients.hpp"
#include "src/commands/cg_inputs.hpp"

namespace terrace {

CgMethod method_of(const std::string& option);
CgNorm norm_of(const std::string& option);
/// Refuses unknown methods, and options that do not go together (usage).
void check_cg_options(Run& run, const CgCommand& options, const CgInputs& in);
/// Says the plan with --plan, or refuses what does not fit. Collective.
template <class B>
void plan_cg(Run& run, const Context<B>& c, const CgInputs& in, const CgCommand& options);

}  // namespace terrace
