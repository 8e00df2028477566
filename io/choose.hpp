// Which object of a file is meant: what fits what is wanted, with what the user says of it.
#pragma once
#include <functional>
#include <string>

#include "io/input.hpp"
#include "io/location.hpp"
#include "io/object.hpp"

namespace terrace::io {

/// What the user says of a dataset becomes its attributes. Throws Error(input) where the file says
/// otherwise, unless `said` yields. Of a group: sparse_form().
void say(Object& object, const FormOptions& said, const std::string& where);
/// Whether its attributes say that it holds packed bits.
bool is_packed(const Object& object);
/// How well the object fits as `kind`: 0 not at all, else smaller is better.
int fit(const Object& object, Kind kind, const Wanted& wanted, const FormOptions& said);
/// "band matrix".
const char* name_of(Kind kind);
/// The only best-fitting object of the file, `fitness` as fit(). Throws Error(input) where none or
/// several fit; `name` says what was looked for.
Object only_one(hid_t file, const Location& location, const std::string& name, const Wanted& wanted,
                const std::function<int(const Object&)>& fitness);

}  // namespace terrace::io
