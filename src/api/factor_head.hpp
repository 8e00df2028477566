// What factors that solve again share: each is made for one backend, which its solves use too.
#pragma once
#include <memory>
#include <utility>

#include "distrib/agree.hpp"
#include "src/api/held.hpp"
#include "src/api/inside.hpp"

namespace terrace::api {

/// The ranks and the device of a factor; `Inside` is what its class holds.
template <class Inside, class B>
struct FactorHead : Inside {
  Context ranks;
  terrace::Context<B>& context;

  FactorHead(const Context& group, terrace::Context<B>& on) : ranks(group), context(on) {}
  /// The device is ours again.
  Context::Inside& on() const {
    Context::Inside& inside = ranks.inside();
    (void)inside.on<B>();
    return inside;
  }
  /// Before a solve. `remembers`: the matrix, for a check. Throws agreed Error(usage). Collective.
  Context::Inside& begin(const Local<double>& b, bool remembers) const {
    Context::Inside& inside = on();
    inside.require_alike({{"Local::columns of b", b.columns}});
    inside.wait_for_caller(There(b));
    if (b.columns < 0)
      fail_together(Exit::usage, "columns below none; Local::columns of b; give none or more");
    if (inside.options.check && !remembers)
      fail_together(Exit::usage,
                    "the factor does not remember its matrix, to check a solution with; "
                    "Options::check; set it before the factor is made, give the matrix where the "
                    "factor is read, or leave the check out");
    return inside;
  }
};

/// A Made<B> for the backend that the matrix wants; its arguments begin with the context, on this
/// backend and on that.
template <template <class> class Made, class... Arguments>
auto factor_on(Context& context, const There& there, const BackendHint& hint,
               const Arguments&... arguments) {
  return with_backend(context.inside(), there, hint, [&]<class B>(terrace::Context<B>& on) {
    using Inside = typename Made<B>::Outside;
    return std::unique_ptr<Inside>(std::make_unique<Made<B>>(context, on, arguments...));
  });
}

}  // namespace terrace::api
