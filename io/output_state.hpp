// What the parts of Output share.
#pragma once
#include <unistd.h>

#include <future>

#include "distrib/agree.hpp"
#include "io/attributes.hpp"
#include "io/growing.hpp"
#include "io/placing.hpp"
#include "io/portions.hpp"
#include "io/unfinished.hpp"

namespace terrace::io {

template <class T>
hid_t type_of() {
  if constexpr (std::is_same_v<T, double>)
    return H5T_NATIVE_DOUBLE;
  else if constexpr (std::is_same_v<T, Index>)
    return H5T_NATIVE_INT64;
  else
    return H5T_NATIVE_UINT64;
}

inline std::vector<Index> shape(Index rows, Index columns) {
  return columns < 0 ? std::vector<Index>{rows} : std::vector<Index>{rows, columns};
}

struct Output::State {
  explicit State(const Control& ranks) : control(ranks) {}

  Control control;
  Location target;
  std::string temporary, sub;
  Unfinished unfinished;
  Growing growing;        ///< of the first rank, where a group is added
  bool fresh = false;     ///< nothing is to be replaced
  bool reserved = false;  ///< the file cannot lack room for the dataset made last
  Handle file;
  std::map<std::string, AnyAttributes> group_attributes;
  std::future<Index> keeping;  ///< where the room ends that expect() keeps; of the first rank

  [[nodiscard]] bool first() const { return control.rank() == 0; }
  [[nodiscard]] std::string target_group() const { return target.path.empty() ? "/" : target.path; }
  [[nodiscard]] std::string group() const {
    return sub.empty() ? target_group() : target.path + "/" + sub;
  }

  /// Runs a collective step; an agreed failure leaves nothing behind.
  template <class F>
  void step(F&& work) {
    try {
      work();
    } catch (const Error& e) {
      if (e.agreed()) abandon();
      throw;
    }
  }
  /// HDF5 must close the file whole, or it crashes at the end of the program: emptied first, the
  /// file gives a full disk the room for that.
  void abandon() {
    if (keeping.valid()) keeping.wait();
    if (first() && file.valid() && truncate(temporary.c_str(), 0) != 0) unfinished.remove();
    control.barrier();
    file.close();
    unfinished.remove();
  }

  void begin();
  void keep(Index bytes, bool early);
  [[nodiscard]] std::string reserve(const std::string& name, Index from, Index bytes);
  Handle open_group(const std::string& path);
  void put_attributes(hid_t object, const AnyAttributes& attributes) {
    for (const auto& [name, value] : attributes) put_attribute(object, name, value, target.file);
  }
  Handle create_dataset(const std::string& name, const std::vector<Index>& dims, hid_t type);
  void count_written(std::span<const Run> runs) const;
  Word place(const Placing& placing, Index count, Index buffer_bytes, int threads,
             const Stage& fill, const std::function<std::vector<Run>(Index)>& runs);
  template <class T, class F>
  Word write_pieces(hid_t dataset, const std::vector<Index>& dims, std::span<const Range> ranges,
                    int axis, const F& fill, const T* held = nullptr);
  template <class T, class F>
  void write_rows(const std::string& name, Index rows, Index columns, std::span<const Range> ranges,
                  const F& fill, const T* held, const Attributes& attributes);
  void finish_dataset(hid_t dataset, const std::vector<Index>& dims, Word sum,
                      const Attributes& attributes);
  template <class T>
  Word write_rows_alone(hid_t dataset, Index width, std::span<const Index> destination,
                        const Source<T>& source);
  template <class T>
  std::vector<T> redistribute(Index rows, Index width, std::span<const Index> destination,
                              const Source<T>& source);
};

}  // namespace terrace::io
