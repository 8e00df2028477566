#include "io/attributes.hpp"

#include <type_traits>

#include "io/hash.hpp"

namespace terrace::io {

AnyAttributes any(const Attributes& attributes) {
  AnyAttributes result;
  for (const auto& [name, value] : attributes)
    std::visit([&, n = name](const auto& v) { result[n] = v; }, value);
  return result;
}

hid_t written(hid_t id, const std::string& what, const std::string& file) {
  if (id < 0)
    throw Error(Exit::resources, what + "; " + file + "; free space on the disk? " + hdf5_reason());
  return id;
}

void put_attribute(hid_t object, const std::string& name, const AnyAttribute& value,
                   const std::string& file) {
  std::visit(
      [&](const auto& v) {
        using V = std::decay_t<decltype(v)>;
        const char* text = nullptr;
        hid_t type = H5T_NATIVE_DOUBLE;
        const void* data = &v;
        hsize_t count = 0;
        Handle string_type;
        if constexpr (std::is_same_v<V, std::string>) {
          string_type = Handle(H5Tcopy(H5T_C_S1), &H5Tclose);
          H5Tset_size(string_type, H5T_VARIABLE);
          H5Tset_cset(string_type, H5T_CSET_UTF8);
          type = string_type;
          text = v.c_str();
          data = &text;
        } else if constexpr (std::is_same_v<V, Index> || std::is_same_v<V, std::vector<Index>>) {
          type = H5T_NATIVE_INT64;
        }
        if constexpr (std::is_same_v<V, std::vector<Index>> ||
                      std::is_same_v<V, std::vector<double>>) {
          data = v.data();
          count = v.size();
        }
        const Handle space(count > 0 ? H5Screate_simple(1, &count, nullptr) : H5Screate(H5S_SCALAR),
                           &H5Sclose);
        const Handle attribute(
            written(H5Acreate2(object, name.c_str(), name == hash_name ? H5T_NATIVE_UINT64 : type,
                               space, H5P_DEFAULT, H5P_DEFAULT),
                    "cannot write attribute " + name, file),
            &H5Aclose);
        written(H5Awrite(attribute, name == hash_name ? H5T_NATIVE_UINT64 : type, data),
                "cannot write attribute " + name, file);
      },
      value);
}

Handle compact_attributes(hid_t property_class) {
  Handle properties(H5Pcreate(property_class), &H5Pclose);
  H5Pset_attr_phase_change(properties, 1000, 0);
  H5Pset_obj_track_times(properties, false);  // the ranks' clocks differ
  return properties;
}

}  // namespace terrace::io
