#include "src/frame/kept_input.hpp"

#include <cstdlib>
#include <cstring>

#include "distrib/agree.hpp"
#include "kernels/base/hash.hpp"

namespace terrace {
namespace {

constexpr Index spare_bytes = Index(2) << 30;  // for what the check and the output take

/// Whether it is wanted: where reading is quick, as on a host, a copy costs as much.
template <class B>
bool is_wanted() {
  const char* said = std::getenv("TERRACE_KEEP_INPUT");
  if (said && (std::strcmp(said, "0") == 0 || std::strcmp(said, "1") == 0)) return *said == '1';
  return !std::is_same_v<B, Cpu>;
}

}  // namespace

template <class B>
Index free_bytes(const Context<B>& context) {
  if constexpr (std::is_same_v<B, Cpu>)
    return available_host_bytes() / context.control.local_size();
  return context.device.shared ? 0 : current_cuda_device().free_bytes;
}

template <class B>
bool KeptInput<B>::take(const Context<B>& context, const io::Rereader& reread,
                        std::span<const Range> ranges, Index width, Index planned) {
  if (!reread || !is_wanted<B>()) return false;
  const Control& control = context.control;
  numbers_ = {};  // of an earlier reading
  again_ = collectively(control, [&] { return reread(ranges); });
  item_.clear();
  for (const Range& range : ranges)
    for (Index i = range.first; i < range.end(); ++i) item_.push_back(i);
  items_ = Index(item_.size());
  width_ = width;
  bool mine = again_ && free_bytes(context) >= 8 * items_ * width + planned + spare_bytes;
  if (control.reduce(Index(mine), Reduce::min) != 0) try {
      numbers_ = Buffer<Word, B>(items_ * width);
    } catch (const Error&) {  // another process was faster
      mine = false;
    }
  if (control.reduce(Index(mine), Reduce::min) == 0) {
    again_.reset();
    numbers_ = {};
  }
  begun_ = false;
  return holds();
}

template <class B>
void KeptInput<B>::copy_from(const Stream<B>& lane, const Word* from, Index ld) {
  if (items_ > 0) copy_rows<Word>(lane, numbers_.data(), width_, from, ld, width_, items_);
}

template <class B>
void KeptInput<B>::seal(const Stream<B>& lane) {
  const Buffer<Index, B> item(items_);
  upload(lane, item.view(), item_.data());
  hash_ = hash_rows(lane, View<const Index, B>(item), width_, numbers_.data(), width_);
}

template <class B>
void KeptInput<B>::begin() {
  if (!holds() || begun_) return;
  again_->begin();
  begun_ = true;
}

template <class B>
void KeptInput<B>::require_same(const Control& control, const std::string& where) {
  if (!begun_) return;
  begun_ = false;
  const bool same = collectively(control, [&] { return again_->finish() == hash_; });
  if (control.reduce(Index(same), Reduce::min) == 0)
    fail_together(Exit::input,
                  "the input has other numbers than when it was read first; " + where +
                      "; leave it alone and start again, or test the memory if nobody wrote to it");
}

#define TERRACE_INSTANTIATE(B)                     \
  template Index free_bytes<B>(const Context<B>&); \
  template class KeptInput<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace
