// How the elements of a dataset lie in its file, and what turns them into doubles.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "io/filters.hpp"
#include "io/inspect.hpp"
#include "kernels/base/large_vector.hpp"

namespace terrace::io {

/// A type that we convert ourselves.
struct Element {
  enum class Form { f64, f32, i8, i16, i32, i64, u8, u16, u32, u64 };
  Form form = Form::f64;
  bool swapped = false;  ///< the other byte order
  Index bytes = 8;
};
/// The element type; none for types that only HDF5 converts. An enumeration is its whole numbers.
std::optional<Element> element_of(hid_t type);

/// to[i] = element i of `from`, as a C cast gives it.
void to_doubles(Element element, const char* from, double* to, Index count);
/// The same for whole numbers; unsigned ones beyond 2^63 - 1 become that.
void to_indices(Element element, const char* from, Index* to, Index count);
/// 64-bit elements with this machine's byte order.
void to_words(Element element, const char* from, Word* to, Index count);

/// Where the elements stand.
struct Stored {
  enum class Way {
    direct,    ///< without gaps in the file, from `offset`
    filtered,  ///< chunks: as they are, deflated, shuffled, with check sums
    library    ///< HDF5 reads: other filters and layouts
  };
  Way way = Way::library;
  Index offset = 0;
  int descriptor = -1;  ///< HDF5's own, of the file that holds the dataset
  Index chunk[2] = {1, 1};
  std::vector<Filter> filters;  ///< in the order in which a chunk was written
};
/// HDF5's own descriptor of an open file that is read by plain system calls, or -1.
int descriptor_of(hid_t file);
/// Direct or filtered only where all is proved that such a read relies on; else library. `file`:
/// the one that the dataset lies in (H5Iget_file_id), not the one that was named. Local; throws
/// Error(input) when the dataset does not lie inside its file.
Stored where_stored(hid_t file, hid_t dataset, const Object& object, const std::string& where);

/// The error of an H5Dread() that failed: a filter that this HDF5 lacks is named. Local.
Error unreadable(hid_t dataset, const std::string& where);

/// Fills `to` from the file; throws Error(input) when the file ends before.
void read_at(int descriptor, Index offset, Index bytes, char* to, const std::string& where);
/// Whether the byte there would be read without a wait: it is in the page cache.
bool is_cached(int descriptor, Index offset);

}  // namespace terrace::io
