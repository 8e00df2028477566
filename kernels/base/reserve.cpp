#include "kernels/base/reserve.hpp"

#include <algorithm>
#include <iterator>
#include <list>
#include <mutex>

#include "kernels/base/kept_memory.hpp"
#include "kernels/base/stream.hpp"

namespace terrace {
namespace detail {

Parts::Parts(char* data, Index bytes) : data_(data) { gaps_[data] = {bytes, 0}; }

char* Parts::take(Index bytes, Index settled, bool& unsettled) {
  bytes = round_up(std::max<Index>(bytes, 1), grain);
  auto best = gaps_.end();
  const auto rank = [&](const Gap& gap) { return std::pair(gap.number > settled, gap.bytes); };
  for (auto at = gaps_.begin(); at != gaps_.end(); ++at)
    if (at->second.bytes >= bytes && (best == gaps_.end() || rank(at->second) < rank(best->second)))
      best = at;
  if (best == gaps_.end()) return nullptr;
  const auto [data, gap] = *best;
  gaps_.erase(best);
  if (gap.bytes > bytes) gaps_[data + bytes] = {gap.bytes - bytes, gap.number};
  taken_[data] = bytes;
  unsettled = gap.number > settled;
  return data;
}

bool Parts::give(char* data, Index number) {
  const auto found = taken_.find(data);
  if (found == taken_.end()) return false;
  Gap gap{found->second, number};
  taken_.erase(found);
  auto after = gaps_.lower_bound(data);
  if (after != gaps_.end() && after->first == data + gap.bytes) {
    gap = {gap.bytes + after->second.bytes, std::max(number, after->second.number)};
    after = gaps_.erase(after);
  }
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second.bytes == data) {
      before->second = {before->second.bytes + gap.bytes,
                        std::max(gap.number, before->second.number)};
      return true;
    }
  }
  gaps_[data] = gap;
  return true;
}

Index Parts::free() const {
  Index sum = 0;
  for (const auto& [data, gap] : gaps_) sum += gap.bytes;
  return sum;
}

namespace {

struct Reserved {
  Parts parts;
  int device;
  bool open = true;  ///< its Reserve exists
};
struct Store {
  std::mutex mutex;
  std::list<Reserved> all;
  Index last = 0;     ///< number of what was given back last
  Index settled = 0;  ///< up to this one nothing works on it any more
};
Store& store() {
  static auto* const instance = new Store;  // buffers of static objects outlive everything else
  return *instance;
}

/// Frees what nobody uses any more.
void drop(Store& s) noexcept {
  for (auto at = s.all.begin(); at != s.all.end();) {
    const bool over = !at->open && at->parts.idle();
    if (over) free_block(Kind::device, at->parts.data());
    at = over ? s.all.erase(at) : std::next(at);
  }
}

}  // namespace

void* take_part(int device, Index bytes) {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  for (Reserved& one : s.all) {
    if (one.device != device || !one.open) continue;
    bool unsettled = false;
    char* const data = one.parts.take(bytes, s.settled, unsettled);
    if (!data) continue;
    if (unsettled) settle_device(), s.settled = s.last;
    return data;
  }
  return nullptr;
}

bool give_part(void* data) noexcept {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  const bool ours = std::any_of(s.all.begin(), s.all.end(), [&](Reserved& one) {
    return one.parts.give(static_cast<char*>(data), s.last + 1);
  });
  if (ours) ++s.last, drop(s);
  return ours;
}

Index free_parts(int device) {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  Index sum = 0;
  for (const Reserved& one : s.all)
    if (one.device == device && one.open) sum += one.parts.free();
  return sum;
}

}  // namespace detail

Reserve::Reserve(Index bytes) {
  bytes = round_up(bytes, detail::Parts::grain);
  const detail::NewBlock block = bytes > 0 ? detail::allocate_reserve(bytes) : detail::NewBlock{};
  if (!block.data) return;
  detail::Store& s = detail::store();
  const std::lock_guard lock(s.mutex);
  s.all.push_back({{static_cast<char*>(block.data), bytes}, block.device});
}
Reserve::~Reserve() {
  detail::Store& s = detail::store();
  const std::lock_guard lock(s.mutex);
  for (detail::Reserved& one : s.all) one.open = false;
  detail::drop(s);
}

}  // namespace terrace
