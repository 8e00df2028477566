#include "distrib/agree.hpp"

#include <fmt/core.h>

#include <map>

#include "distrib/imagined.hpp"
#include "distrib/place.hpp"
#include "distrib/quote.hpp"
#include "distrib/session.hpp"
#include "kernels/base/buffer.hpp"
#include "kernels/base/kept_memory.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/size_text.hpp"

namespace terrace {

void detail::agree(const Control& control, const std::optional<Error>& mine) {
  const Index first = control.reduce(Index(mine ? control.rank() : control.size()), Reduce::min);
  if (first == control.size()) return;
  Index code = mine ? Index(mine->code()) : 0;
  control.broadcast(&code, sizeof code, int(first));
  std::string text;
  if (mine)  // what the standard library throws says neither where nor what to do
    text = in_three_parts(mine->what(),
                          fmt::format("rank {} on host {}, {}", control.rank(), host_name(),
                                      to_string(current_place())),
                          "report the command line");
  const std::string message = control.broadcast(text, int(first));
  throw Error(Exit(code), message).as_agreed();
}

void require_alike(const Control& control, const std::vector<Alike>& given) {
  if (control.size() == 1) return;
  std::vector<Index> most;
  for (const Alike& one : given) most.insert(most.end(), {one.value, ~one.value});
  control.reduce(most, Reduce::max);
  for (std::size_t i = 0; i < given.size(); ++i)
    if (most[2 * i] != ~most[2 * i + 1])
      fail_together(Exit::usage,
                    fmt::format("the ranks differ in {}; in the arguments; give the same on each",
                                given[i].name));
}

namespace {

/// What is short where `wanted`, summed over the ranks of one `key`, passes their least `free`.
std::string shortage_of_shares(const Control& control, const std::string& key, Index wanted,
                               Index free, const char* what) {
  const auto keys = control.gather_all(key);
  const auto wants = control.gather_all(wanted);
  const auto frees = control.gather_all(free);
  std::map<std::string, std::pair<Index, Index>> places;
  for (std::size_t r = 0; r < keys.size(); ++r) {
    auto [it, fresh] = places.try_emplace(keys[r], 0, frees[r]);
    it->second.first += wants[r];
    it->second.second = std::min(it->second.second, frees[r]);
  }
  for (const auto& [place, need] : places)
    if (need.first > need.second)
      return fmt::format(
          "not enough {}: {} needed, {} free; {}; use more ranks or hosts, or a "
          "smaller problem (--plan shows the memory of each rank)",
          what, size_text(need.first), size_text(need.second), place);
  return {};
}

}  // namespace

namespace {
/// Where every rank needs as much, and the hosts are like this one or the assumed device's.
std::string shortage_of_plan(const Control& control, Index bytes_host, Index bytes_device) {
  const bool limited = process_memory_is_limited();
  const Index free = available_host_bytes(), ranks = limited ? 1 : control.local_size();
  const char* const advice =
      "use more ranks or hosts, or a smaller problem (--plan shows the memory of each rank)";
  if (ranks * bytes_host > free)
    return fmt::format("not enough host memory: {} needed, {} free; a host of {} rank{}; {}",
                       size_text(ranks * bytes_host), size_text(free), ranks, ranks == 1 ? "" : "s",
                       advice);
  if (bytes_device == 0) return {};
  const DeviceInfo device = current_cuda_device();
  if (bytes_device <= device.free_bytes) return {};
  return fmt::format("not enough device memory: {} needed, {} free; each {}; {}",
                     size_text(bytes_device), size_text(device.free_bytes), device.name, advice);
}
}  // namespace

std::string memory_shortage(const Control& control, Index bytes_host, Index bytes_device) {
  const bool on_host = control.reduce(bytes_host, Reduce::max) > 0;
  const HostRoom room = on_host ? host_room() : HostRoom();  // the system takes a while to say it
  const bool limited = room.limited;
  const Index free = room.bytes + detail::kept_memory(detail::Kind::host);
  // OpenBLAS takes a buffer of 128 MiB a thread, and retries for ever when it cannot have it.
  if (limited && bytes_host > 0) bytes_host += thread_count() * (Index(129) << 20);
  if (is_imagined(control)) return shortage_of_plan(control, bytes_host, bytes_device);
  // A limit of the process itself binds each rank alone; the host's memory binds their sum.
  const Index short_rank =
      control.reduce(Index(bytes_host > free ? control.rank() : control.size()), Reduce::min);
  if (short_rank < control.size()) {
    const auto wants = control.gather_all(bytes_host), frees = control.gather_all(free);
    return fmt::format(
        "not enough host memory: {} needed, {} free; rank {}; use more ranks or hosts, or a "
        "smaller problem (--plan shows the memory of each rank)",
        size_text(wants[short_rank]), size_text(frees[short_rank]), short_rank);
  }
  std::string shortage;
  if (on_host)
    shortage = shortage_of_shares(
        control, limited ? fmt::format("rank {}", control.rank()) : "host " + host_name(),
        bytes_host, free, "host memory");
  if (shortage.empty() && control.reduce(bytes_device, Reduce::max) > 0) {
    const Index kept = detail::kept_memory(detail::Kind::device);  // freed where it is in the way
    if (control.size() == 1 && bytes_device <= kept) return shortage;
    const DeviceInfo device = current_cuda_device();
    shortage = shortage_of_shares(control, "device " + device.uuid, bytes_device,
                                  device.free_bytes + kept, "device memory");
  }
  return shortage;
}

void require_memory(const Control& control, Index bytes_host, Index bytes_device) {
  const std::string shortage = memory_shortage(control, bytes_host, bytes_device);
  if (!shortage.empty()) fail_together(Exit::resources, shortage);
}

}  // namespace terrace
