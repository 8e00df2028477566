// Object <-> bytes, for the broadcast from the rank that looked.
#pragma once
#include <cstring>
#include <string>

#include "io/inspect.hpp"

namespace terrace::io {

struct Writer {
  std::string bytes;
  void put(Index value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void put(double value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void put(const std::string& text) {
    put(Index(text.size()));
    bytes += text;
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put(Index(values.size()));
    for (const T& v : values) put(v);
  }
};

struct Reader {
  const std::string& bytes;
  std::size_t at = 0;
  void get(Index& value) { at += bytes.copy(reinterpret_cast<char*>(&value), sizeof value, at); }
  void get(double& value) { at += bytes.copy(reinterpret_cast<char*>(&value), sizeof value, at); }
  void get(std::string& text) {
    Index size = 0;
    get(size);
    text = bytes.substr(at, std::size_t(size));
    at += std::size_t(size);
  }
  template <class T>
  void get(std::vector<T>& values) {
    Index size = 0;
    get(size);
    values.resize(std::size_t(size));
    for (T& v : values) get(v);
  }
  template <class T>
  T get() {
    T value{};
    get(value);
    return value;
  }
};

inline void write_object(Writer& w, const Object& o) {
  w.put(Index(o.group));
  w.put(o.path);
  w.put(o.dims);
  w.put(Index(o.number));
  w.put(o.bytes);
  w.put(Index(o.contiguous));
  w.put(Index(o.native));
  w.put(o.values);
  w.put(Index(o.attributes.size()));
  for (const auto& [name, value] : o.attributes) {
    w.put(name);
    w.put(Index(value.index()));
    std::visit([&](const auto& v) { w.put(v); }, value);
  }
  w.put(Index(o.children.size()));
  for (const auto& [name, child] : o.children) {
    w.put(name);
    write_object(w, child);
  }
}

inline Object read_object(Reader& r) {
  Object o;
  o.group = r.get<Index>() != 0;
  r.get(o.path);
  r.get(o.dims);
  o.number = Number(r.get<Index>());
  r.get(o.bytes);
  o.contiguous = r.get<Index>() != 0;
  o.native = r.get<Index>() != 0;
  r.get(o.values);
  for (Index k = r.get<Index>(); k > 0; --k) {
    const auto name = r.get<std::string>();
    AnyAttribute& value = o.attributes[name];
    switch (r.get<Index>()) {
      case 0:
        value = r.get<Index>();
        break;
      case 1:
        value = r.get<double>();
        break;
      case 2:
        value = r.get<std::string>();
        break;
      case 3:
        value = r.get<std::vector<Index>>();
        break;
      default:
        value = r.get<std::vector<double>>();
    }
  }
  for (Index k = r.get<Index>(); k > 0; --k) {
    const auto name = r.get<std::string>();
    o.children[name] = read_object(r);
  }
  return o;
}

}  // namespace terrace::io
