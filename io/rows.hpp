// Numbers as they are stored: for checkpoints.
#pragma once
#include "io/input.hpp"

namespace terrace::io {

/// Shape of the dataset of 8-byte numbers at `location`; throws Error(input) where there is none.
/// Collective.
std::vector<Index> stored_shape(const Control& control, const Location& location);
/// The bits of the rows in `ranges` of this rank, row-major; see Sink. Collective.
void read_stored(const Control& control, const Location& location, std::span<const Range> ranges,
                 const Sink<Word>& sink);
/// A hash of the object's shape, kind, attributes and of samples of its numbers (at most a few
/// MiB), or of the whole: the same for the same matrix in another file. Collective.
Word fingerprint(const Control& control, const Location& location, bool whole = false);
/// Whether all of the object lies in that file, and none of it behind external links or in other
/// storage. Collective.
bool stands_alone(const Control& control, const Location& location);

}  // namespace terrace::io
