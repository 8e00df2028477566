#include "distrib/agree.hpp"
#include "distrib/hypre.hpp"

namespace terrace {

struct Hypre::Inside {};

std::string hypre_version() { return {}; }
Hypre::Hypre(const Control&, Index, Range, const Index*, const Index*, const double*) {
  fail_together(Exit::usage,
                "this build has no hypre; --preconditioner hypre; use amg, or build Terrace where "
                "hypre is installed");
}
Hypre::~Hypre() = default;
void Hypre::apply(const double*, double*) const {}

}  // namespace terrace
