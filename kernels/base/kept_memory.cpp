#include "kernels/base/kept_memory.hpp"

#include <algorithm>
#include <list>
#include <mutex>
#include <unordered_map>

#include "kernels/base/stream.hpp"

namespace terrace {
namespace detail {
namespace {

constexpr Index least_on_host = Index(64) << 10;  // malloc is as fast for less

struct Block {
  void* data;
  Kind kind;
  int device;
  Index bytes;
  Index number = 0;  ///< of those that were kept
};

struct Store {
  std::mutex mutex;
  int users = 0;
  std::unordered_map<void*, Block> taken;
  std::list<Block> kept;       // the oldest first
  Index bytes[3] = {0, 0, 0};  // by Kind
  Index most[3] = {Index(256) << 20, Index(256) << 20, Index(1) << 30};
  Index last = 0, settled = 0;  // number of the last block; up to this one nothing works on them
};
Store& store() {
  static auto* const instance = new Store;  // buffers of static objects outlive everything else
  return *instance;
}

// With the lock held.
void settle(Store& s) {
  if (s.settled < s.last) settle_device();
  s.settled = s.last;
}

/// Out of the list.
Block unlist(Store& s, std::list<Block>::iterator at) {
  const Block block = *at;
  s.bytes[int(block.kind)] -= block.bytes;
  s.kept.erase(at);
  return block;
}

}  // namespace

Index kept_memory(Kind kind) {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  return s.bytes[int(kind)];
}

void keep_of_device(Index bytes) {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  s.most[int(Kind::device)] = std::max(Index(1) << 30, bytes);
}

void* take_kept(Kind kind, int device, Index bytes) {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  const Index room = kind == Kind::device ? bytes / 4 : 0;
  auto best = s.kept.end();
  for (auto at = s.kept.begin(); at != s.kept.end(); ++at)
    if (at->kind == kind && at->device == device && at->bytes >= bytes &&
        at->bytes <= bytes + room && (best == s.kept.end() || at->bytes < best->bytes))
      best = at;
  if (best == s.kept.end()) return nullptr;
  const Block block = unlist(s, best);
  s.taken.emplace(block.data, block);
  if (kind != Kind::host && block.number > s.settled) settle(s);
  return block.data;
}

void settle_kept() noexcept {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  settle(s);
}

void note_taken(Kind kind, int device, void* data, Index bytes) {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  if (s.users > 0) s.taken[data] = {data, kind, device, bytes};
}

bool keep(Kind kind, void* data) noexcept {
  Store& s = store();
  std::list<Block> old;
  {
    const std::lock_guard lock(s.mutex);
    const auto found = s.taken.find(data);
    if (found == s.taken.end()) return false;
    const Block block = found->second;
    s.taken.erase(found);
    Index& bytes = s.bytes[int(kind)];
    const Index most = s.most[int(kind)];
    if (s.users == 0 || block.bytes > most || (kind == Kind::host && block.bytes < least_on_host))
      return false;
    for (auto at = s.kept.begin(); at != s.kept.end() && bytes + block.bytes > most;) {
      const auto next = std::next(at);
      if (at->kind == kind) old.push_back(unlist(s, at));
      at = next;
    }
    if (!old.empty()) settle(s);
    s.kept.push_back(block);
    s.kept.back().number = ++s.last;
    bytes += block.bytes;
  }
  for (const Block& block : old) free_block(block.kind, block.data);
  return true;
}

bool free_all_kept() noexcept {
  Store& s = store();
  std::list<Block> old;
  {
    const std::lock_guard lock(s.mutex);
    settle(s);
    old.swap(s.kept);
    for (Index& bytes : s.bytes) bytes = 0;
  }
  for (const Block& block : old) free_block(block.kind, block.data);
  return !old.empty();
}

}  // namespace detail

KeepsMemory::KeepsMemory() {
  detail::Store& s = detail::store();
  const std::lock_guard lock(s.mutex);
  ++s.users;
}
KeepsMemory::~KeepsMemory() {
  detail::Store& s = detail::store();
  {
    const std::lock_guard lock(s.mutex);
    if (--s.users > 0) return;
    s.taken.clear();
  }
  detail::free_all_kept();
}

void release_kept_memory() noexcept { detail::free_all_kept(); }

Index kept_memory() {
  detail::Store& s = detail::store();
  const std::lock_guard lock(s.mutex);
  return s.bytes[0] + s.bytes[1] + s.bytes[2];
}

}  // namespace terrace
