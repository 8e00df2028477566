// For cluster.cuh: messages between the processors of a cluster, through their shared memories.
#pragma once
#include "kernels/dense/cuda/panel.cuh"

#ifdef TERRACE_SM90A

namespace terrace::dense::cluster {

__device__ inline unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
/// A message is two words of 8 bytes, which need not come together: PTX has each come whole. Each
/// says which column it belongs to, by which what has come is recognised: no flag, fence or reset.
/// A number of a pivot row: halves of its bits, each with a tag.
struct Chunk {
  unsigned low, low_tag, high, high_tag;
  /// 0 where both words are of this column.
  [[nodiscard]] __device__ unsigned lacks(unsigned tag) const {
    return (low_tag ^ tag) | (high_tag ^ tag);
  }
  [[nodiscard]] __device__ Bits bits() const { return Bits(high) << 32 | low; }
};
/// A header: rank, row with the pivot's sign, and a tag of 16 bits in each word.
struct Header {
  unsigned rank_high, middle;  ///< the rank's high half; 16 bits of its low half, tag
  unsigned row, low;           ///< the rank's lowest 16 bits, tag
  /// 0 where both words are of this column.
  [[nodiscard]] __device__ unsigned lacks(unsigned tag) const {
    return __byte_perm(middle, low, 0x5410) ^ (tag << 16 | tag);
  }
  [[nodiscard]] __device__ Bits rank() const {
    return Bits(rank_high) << 32 | __byte_perm(middle, low, 0x3276);
  }
};
/// Where shared memory that begins at `here` begins on another processor of the cluster.
__device__ inline char* of_processor(void* here, int processor) {
  unsigned long long there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(here), "r"(processor));
  return reinterpret_cast<char*>(there);
}
/// (a, b) and (c, d), the two words of a message.
__device__ inline void send(char* to, unsigned a, unsigned b, unsigned c, unsigned d) {
  asm volatile(
      "{\n\t.reg .u64 first, second;\n\t"
      "mov.b64 first, {%1, %2};\n\tmov.b64 second, {%3, %4};\n\t"
      "st.relaxed.cluster.v2.u64 [%0], {first, second};\n\t}" ::"l"(to),
      "r"(a), "r"(b), "r"(c), "r"(d)
      : "memory");
}
__device__ inline void send(char* to, Bits number, unsigned tag) {
  send(to, unsigned(number), tag, unsigned(number >> 32), tag);
}
__device__ inline void send_header(char* to, Bits rank, unsigned row, unsigned tag) {
  send(to, unsigned(rank >> 32), __byte_perm(unsigned(rank), tag, 0x3254), row,
       __byte_perm(unsigned(rank), tag, 0x1054));
}
/// What is there now, as a Chunk or a Header.
template <class Message>
__device__ inline Message look(unsigned from) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  asm volatile(
      "{\n\t.reg .u64 first, second;\n\t"
      "ld.relaxed.cluster.shared::cta.v2.u64 {first, second}, [%4];\n\t"
      "mov.b64 {%0, %1}, first;\n\tmov.b64 {%2, %3}, second;\n\t}"
      : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
      : "r"(from)
      : "memory");
  return {a, b, c, d};
}
__device__ inline void arrive_at_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void wait_at_barrier() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

}  // namespace terrace::dense::cluster

#endif
