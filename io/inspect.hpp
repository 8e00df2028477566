// What stands in a file: rank 0 looks, serially, and tells the others. All functions are collective
// and throw agreed Errors; nothing here reads a matrix.
#pragma once
#include <string>

#include "io/input.hpp"
#include "io/location.hpp"
#include "io/object.hpp"

namespace terrace::io {

/// The object at `location` that fits as `wanted`, or the only one in the file that fits when no
/// path is given. Throws Exit::input: no such file, not HDF5, damaged, no such dataset, several
/// candidates. With a path the kind is not judged here. The object has the attributes that
/// `location.form` says; Exit::input where the file says otherwise.
Object find_object(const Control& control, const Location& location, Kind kind,
                   const Wanted& wanted);
/// As find_object for any kind; sets `kind`. `real`: see kind_of().
Object find_any(const Control& control, const Location& location, Kind& kind, bool real,
                const Wanted& wanted);
/// The object at exactly `location` ("" the root group).
Object describe(const Control& control, const Location& location);

}  // namespace terrace::io
