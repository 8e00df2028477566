// Attributes of results: their HDF5 forms, and errors of writing.
#pragma once
#include <string>

#include "io/hdf5.hpp"
#include "io/inspect.hpp"
#include "io/output.hpp"

namespace terrace::io {

[[nodiscard]] AnyAttributes any(const Attributes& attributes);
/// `id`, or throws Error(resources) when it is negative: nearly always the disk.
hid_t written(hid_t id, const std::string& what, const std::string& file);
/// Creates an attribute: strings in UTF-8 of variable length, integers as int64, reals as doubles.
void put_attribute(hid_t object, const std::string& name, const AnyAttribute& value,
                   const std::string& file);
/// Creation properties: attributes stay in the object header, times out of it.
[[nodiscard]] Handle compact_attributes(hid_t property_class);

}  // namespace terrace::io
