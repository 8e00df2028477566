#include "io/output.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "io/archive.hpp"
#include "io/files.hpp"
#include "io/guard.hpp"
#include "io/hash.hpp"
#include "io/input.hpp"
#include "io/output_state.hpp"
#include "kernels/base/timeline.hpp"

namespace terrace::io {

namespace {

/// The attributes of every group as rank 0 knows them. Metadata are written by all ranks together:
/// a clock, a name or a choice that differs between ranks must not reach them.
std::map<std::string, AnyAttributes> from_first(const Control& control,
                                                const std::map<std::string, AnyAttributes>& mine) {
  Object all;
  for (const auto& [path, attributes] : mine) all.children[path].attributes = attributes;
  Writer writer;
  if (control.rank() == 0) write_object(writer, all);
  const std::string told = control.broadcast(writer.bytes, 0);
  Reader reader{told};
  std::map<std::string, AnyAttributes> result;
  for (auto& [path, object] : read_object(reader).children) result[path] = object.attributes;
  return result;
}

/// The group is replaced, and the root's link to its terrace group with it.
void remove_group(hid_t file, const Location& target) {
  const auto remove = [&](const char* path) {
    written(H5Ldelete(file, path, H5P_DEFAULT), "cannot replace the group", target.file);
  };
  const Handle old(H5Gopen2(file, "/terrace", H5P_DEFAULT), &H5Gclose);
  if (old.valid()) {
    const auto attributes = read_all_attributes(old);
    const auto named = attributes.find("group");
    if (named != attributes.end() && named->second == AnyAttribute(target.path)) remove("/terrace");
  }
  for (std::size_t end = 0; end < target.path.size();) {
    end = std::min(target.path.find('/', end + 1), target.path.size());
    if (H5Lexists(file, target.path.substr(0, end).c_str(), H5P_DEFAULT) <= 0) return;
  }
  remove(target.path.c_str());
}

/// Whether something has that path in the file, a broken link too. Throws Error(usage) where it is
/// no HDF5 file. Collective.
bool linked(const Control& control, const Location& target) {
  bool found = false;
  collectively(control, [&] {
    if (control.rank() != 0) return;
    struct stat status {};
    if (stat(target.file.c_str(), &status) == 0 && status.st_size == 0)
      throw Error(Exit::usage, "a group cannot be added to an empty file; " + target.file +
                                   "; choose another file");
    found = look_safely(target.file, [&]() -> std::string {
              hdf5_ready();
              const Handle file = open_alone(target.file);
              if (!file.valid())
                throw Error(Exit::usage, "a group cannot be added to the file: " + hdf5_reason() +
                                             "; " + target.file + "; choose another file");
              for (std::size_t end = 0; end < target.path.size();) {
                end = std::min(target.path.find('/', end + 1), target.path.size());
                if (H5Lexists(file, target.path.substr(0, end).c_str(), H5P_DEFAULT) <= 0)
                  return {};
              }
              return "found";
            }) == "found";
  });
  return control.reduce(Index(found), Reduce::max) > 0;
}

/// Refuses a group that cannot be: `/terrace` is the record's name, and "." no name at all.
void require_name(const Location& target) {
  for (std::size_t at = 0; at < target.path.size();) {
    const std::size_t end = std::min(target.path.find('/', at + 1), target.path.size());
    const std::string name = target.path.substr(at + 1, end - at - 1);
    if (name.empty() || name == "." || name == ".." || name == "terrace")
      throw Error(Exit::usage, "'" + name + "' cannot name a group; " + to_string(target) +
                                   "; choose another name");
    at = end;
  }
}

/// Refuses a way to the group that leads through what is no group of this file.
void require_way(hid_t file, const Location& target) {
  const auto refuse = [&](const std::string& path, const std::string& what) {
    throw Error(Exit::usage, "the group cannot be created: " + path + " " + what + "; " +
                                 to_string(target) + "; choose another group");
  };
  for (std::size_t end = 0; end < target.path.size();) {
    end = std::min(target.path.find('/', end + 1), target.path.size());
    const std::string path = target.path.substr(0, end);
    H5L_info_t link{};
    if (H5Lexists(file, path.c_str(), H5P_DEFAULT) <= 0) return;  // made, and what is below it
    if (H5Lget_info(file, path.c_str(), &link, H5P_DEFAULT) < 0) refuse(path, "cannot be read");
    if (end == target.path.size()) return;  // replaced
    if (link.type != H5L_TYPE_HARD && link.type != H5L_TYPE_SOFT)
      refuse(path, "is a link to another file");
    const Handle there(H5Oopen(file, path.c_str(), H5P_DEFAULT), &H5Oclose);
    if (!there.valid()) refuse(path, "is a link to nothing");
    if (H5Iget_type(there) != H5I_GROUP) refuse(path, "is not a group");
  }
}

/// Whether what will be done to a file that gets a group can be done, tried before the solve: in
/// memory where the file is small, else as far as reading goes.
void rehearse(const Location& target) {
  look_safely(target.file, [&]() -> std::string {
    hdf5_ready();
    std::error_code failed;
    const bool small = std::filesystem::file_size(target.file, failed) <= (1 << 26) && !failed;
    const Handle access(H5Pcreate(H5P_FILE_ACCESS), &H5Pclose);
    if (small) H5Pset_fapl_core(access, 1 << 20, 0);
    Handle file(H5Fopen(target.file.c_str(), small ? H5F_ACC_RDWR : H5F_ACC_RDONLY, access),
                &H5Fclose);
    const auto refuse = [&](const std::string& what) {
      throw Error(Exit::usage, what + "; " + to_string(target) + "; choose another file");
    };
    if (!file.valid()) refuse("a group cannot be added to the file: " + hdf5_reason());
    require_way(file, target);
    if (!small) {
      const Handle old(H5Gopen2(file, "/terrace", H5P_DEFAULT), &H5Gclose);
      if (old.valid()) read_all_attributes(old);
      const Handle there(H5Oopen(file, target.path.c_str(), H5P_DEFAULT), &H5Oclose);
      return {};
    }
    remove_group(file, target);
    const Handle links(H5Pcreate(H5P_LINK_CREATE), &H5Pclose);
    H5Pset_create_intermediate_group(links, 1);
    const hsize_t dims[2] = {16, 16};
    const std::vector<double> data(16 * 16, 1.0);
    {
      const Handle space(H5Screate_simple(2, dims, nullptr), &H5Sclose);
      const Handle set(H5Dcreate2(file, (target.path + "/terrace-rehearsal").c_str(),
                                  H5T_NATIVE_DOUBLE, space, links, H5P_DEFAULT, H5P_DEFAULT),
                       &H5Dclose);
      if (!set.valid() ||
          H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data()) < 0)
        refuse("the group cannot be created: " + hdf5_reason());
    }
    file.close();
    return {};
  });
}

}  // namespace

Output::Output(const Control& control, const std::string& target, bool force)
    : state_(new State(control)) {
  State& s = *state_;
  s.target = collectively(control, [&] { return parse_location(target); });
  s.target.file = control.broadcast(followed(s.target.file), 0);
  bool file_exists = false;
  collectively(control, [&] {
    if (!s.first()) return;
    require_name(s.target);
    if (s.target.file == "-")
      throw Error(
          Exit::usage,
          "HDF5 cannot be written to standard output; -; name a file (./- for one called -)");
    struct stat status {};
    file_exists = stat(s.target.file.c_str(), &status) == 0;
    if (!file_exists && errno == ENAMETOOLONG)
      throw Error(Exit::usage,
                  "the output's name is too long; " + s.target.file + "; choose a shorter one");
    if (!file_exists && errno == ELOOP)
      throw Error(Exit::usage,
                  "the output is a circle of links; " + s.target.file + "; choose another name");
    if ((file_exists && S_ISDIR(status.st_mode)) || s.target.file.back() == '/')
      throw Error(Exit::usage, "the output is a folder; " + s.target.file + "; name a file in it");
    if (file_exists && !S_ISREG(status.st_mode))  // a rename would replace the device
      throw Error(Exit::usage,
                  "the output is not a regular file; " + s.target.file + "; choose another name");
    if (file_exists && s.target.path.empty() && !force)
      throw Error(Exit::usage,
                  "the output exists; " + s.target.file + "; choose another name or add --force");
    const std::string folder = folder_of(s.target.file), reason = why_not_writable(folder);
    if (!reason.empty())
      throw Error(Exit::usage, "cannot write in the output folder: " + reason + "; " + folder +
                                   "; choose a writable folder");
  });
  file_exists = control.reduce(Index(file_exists), Reduce::max) > 0;
  const bool grows = file_exists && !s.target.path.empty();
  s.fresh = !file_exists && !force;
  if (grows && !force && linked(control, s.target))
    fail_together(Exit::usage, "the output group exists; " + to_string(s.target) +
                                   "; choose another name or add --force");
  if (grows)
    collectively(control, [&] {
      std::error_code failed;
      const auto size = s.first() ? std::filesystem::file_size(s.target.file, failed) : 0;
      if (!failed && static_cast<long long>(size) > free_bytes(folder_of(s.target.file)))
        throw Error(Exit::resources, "no room on the disk to copy the file and add the group; " +
                                         s.target.file + "; free space or choose another file");
    });
  if (grows)
    collectively(control, [&] {
      if (!s.first()) return;
      rehearse(s.target);
      s.growing.hold(s.target.file);  // last: of HDF5's own locks it would be in the way
    });
  s.temporary = control.broadcast(unfinished_name(s.target.file, getpid()), 0);
}

Output::~Output() = default;

Handle Output::State::open_group(const std::string& path) {
  if (path == "/") return {H5Gopen2(file, "/", H5P_DEFAULT), &H5Gclose};
  if (const hid_t there = H5Gopen2(file, path.c_str(), H5P_DEFAULT); there >= 0)
    return {there, &H5Gclose};
  const Handle links(H5Pcreate(H5P_LINK_CREATE), &H5Pclose);
  H5Pset_create_intermediate_group(links, 1);
  return {written(H5Gcreate2(file, path.c_str(), links, compact_attributes(H5P_GROUP_CREATE),
                             H5P_DEFAULT),
                  "cannot create group " + path, target.file),
          &H5Gclose};
}

/// Creates the temporary file: new, or a copy of the file that gets a group.
void Output::State::begin() {
  if (file.valid()) return;
  bool copied = false;
  collectively(control, [&] {
    unfinished.begin(temporary, control.rank());
    if (!first()) return;
    std::error_code failed;
    if (target.path.empty() || !std::filesystem::exists(target.file, failed)) return;
    growing.note(target.file);
    std::filesystem::copy_file(target.file, temporary,
                               std::filesystem::copy_options::overwrite_existing, failed);
    if (failed)
      throw Error(Exit::resources, "cannot copy the file to add the group: " + failed.message() +
                                       "; " + target.file + "; free space on the disk?");
    copied = true;
  });
  copied = control.reduce(Index(copied), Reduce::max) > 0;
  file = copied ? open_parallel(control, temporary, true) : create_parallel(control, temporary);
  unfinished.opened();
  collectively(control, [&] { written(file, "cannot create the output", target.file); });
  if (!copied) return;
  collectively(control, [&] { remove_group(file, target); });
}

namespace {
constexpr Index metadata = Index(1) << 18;  // beside a dataset, at most about
}

void Output::State::keep(Index bytes, bool early) {
  constexpr Index large = Index(1) << 26;
  const std::string folder = folder_of(target.file);
  if (early) {
    const bool now = first() && bytes >= large && target.path.empty() && lies_in_memory(folder);
    if (control.reduce(Index(now), Reduce::max) == 0) return;
  }
  begin();
  collectively(control, [&] {
    hsize_t so_far = 0;
    H5Fget_filesize(file, &so_far);
    if (!first() || keeping.valid() || bytes < large || bytes > free_bytes(folder)) return;
    const Index from = std::max<Index>(0, Index(so_far) - metadata),
                more = bytes + 4 * metadata + stripe_bytes();
    keeping = std::async(std::launch::async, [path = temporary, from, more] {
      const Noted noted("file", "reserve");
      bool promised = false;
      return reserve_space(path, from, more, promised).empty() && promised ? from + more : 0;
    });
  });
}

void Output::expect(Index bytes, bool early) {
  state_->step([&] { state_->keep(bytes, early); });
}

/// Empty, or why the file cannot have `bytes` bytes from `from` on. Of the first rank.
std::string Output::State::reserve(const std::string& name, Index from, Index bytes) {
  reserved = keeping.valid() && keeping.get() >= from + bytes;
  if (reserved) return {};
  const std::string folder = folder_of(target.file);
  const std::string reason =
      bytes > free_bytes(folder)
          ? fmt::format("{:.3g} GB are free", double(free_bytes(folder)) / 1e9)
          : reserve_space(temporary, from, bytes, reserved);
  if (reason.empty()) return {};
  return fmt::format(
      "no room on the disk: {} needs {:.3g} GB, {}; {}; free space or choose another folder", name,
      double(bytes) / 1e9, reason, target.file);
}

Handle Output::State::create_dataset(const std::string& name, const std::vector<Index>& dims,
                                     hid_t type) {
  Index bytes = 8;
  for (const Index d : dims) bytes *= d;
  begin();
  // A disk that fills while the ranks write together would leave some of them waiting in MPI-IO.
  collectively(control, [&] {
    hsize_t so_far = 0;
    H5Fget_filesize(file, &so_far);
    if (!first()) return;
    if (access(temporary.c_str(), F_OK) != 0)  // a signal's doing, or somebody's
      throw Error(Exit::resources, fmt::format("the unfinished output is gone: {}; {}; start again",
                                               std::strerror(errno), target.file));
    const std::string reason = reserve(name, std::max<Index>(0, Index(so_far) - metadata),
                                       bytes + 2 * metadata + stripe_bytes());
    if (!reason.empty()) throw Error(Exit::resources, reason);
  });
  reserved = control.reduce(Index(reserved), Reduce::max) > 0;  // the first rank's word
  return collectively(control, [&] {
    const std::vector<hsize_t> extent(dims.begin(), dims.end());
    const Handle space(H5Screate_simple(int(extent.size()), extent.data(), nullptr), &H5Sclose);
    const Handle properties = compact_attributes(H5P_DATASET_CREATE);
    H5Pset_layout(properties, H5D_CONTIGUOUS);
    H5Pset_alloc_time(properties, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(properties, H5D_FILL_TIME_NEVER);
    const Handle where = open_group(group());
    return Handle(
        written(H5Dcreate2(where, name.c_str(), type, space, H5P_DEFAULT, properties, H5P_DEFAULT),
                "cannot create dataset " + name, target.file),
        &H5Dclose);
  });
}

void Output::State::finish_dataset(hid_t dataset, const std::vector<Index>& dims, Word sum,
                                   const Attributes& attributes) {
  std::vector<Word> total{sum};
  control.reduce(total, Reduce::sum);
  const AnyAttributes all = from_first(control, {{"", any(attributes)}}).at("");
  collectively(control, [&] {
    put_attributes(dataset, all);
    put_attribute(dataset, hash_name, Index(total[0] + hash_frame(all, dims)), target.file);
  });
}

void Output::attribute(const std::string& name, const Attribute& value) {
  state_->step([&] {
    state_->begin();
    std::visit([&](const auto& v) { state_->group_attributes[state_->group()][name] = v; }, value);
  });
}

void Output::attribute(const std::string& name, const std::vector<Index>& values) {
  state_->step([&] {
    state_->begin();
    state_->group_attributes[state_->group()][name] = values;
  });
}

void Output::group(const std::string& name) { state_->sub = name; }

void Output::commit(const Attributes& terrace) {
  State& s = *state_;
  s.step([&] {
    s.begin();
    const std::string base = s.target.path;  // empty for the root
    AnyAttributes record = any(terrace);
    record["group"] = s.target_group();
    s.group_attributes[base + "/terrace"] = record;
    s.group_attributes = from_first(s.control, s.group_attributes);
    hsize_t expected = 0;
    collectively(s.control, [&] {
      for (const auto& [path, attributes] : s.group_attributes) {
        const Handle group = s.open_group(path);
        s.put_attributes(group, attributes);
        put_attribute(group, hash_name, Index(hash_frame(attributes, {})), s.target.file);
      }
      if (!base.empty() && H5Lexists(s.file, "terrace", H5P_DEFAULT) <= 0)
        written(H5Lcreate_hard(s.file, (base + "/terrace").c_str(), s.file, "/terrace", H5P_DEFAULT,
                               H5P_DEFAULT),
                "cannot link the terrace group", s.target.file);
      written(H5Fflush(s.file, H5F_SCOPE_GLOBAL), "cannot write the output", s.target.file);
      H5Fget_filesize(s.file, &expected);
    });
    const herr_t closed = s.file.close();
    collectively(s.control, [&] {
      if (closed < 0)
        throw Error(Exit::resources, "cannot finish the output; " + s.target.file +
                                         "; free space on the disk? " + hdf5_reason());
      if (!s.first()) return;
      struct stat status {};
      const bool whole =
          stat(s.temporary.c_str(), &status) == 0 && status.st_size >= static_cast<off_t>(expected);
      const std::string reason = whole ? sync_file(s.temporary) : "it is too short";
      if (!reason.empty())
        throw Error(Exit::resources, "the output did not reach the disk: " + reason + "; " +
                                         s.target.file + "; free space on the disk?");
      give_name(s.temporary, s.target.file,
                s.fresh ? name_is_taken(s.target.file) : s.growing.changed(),
                s.fresh ? "" : ", beside what the file held before");
    });
    s.unfinished.finish();
  });
}

}  // namespace terrace::io
