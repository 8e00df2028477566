// A result under construction: its temporary name, and its removal whatever happens.
#pragma once
#include <string>

namespace terrace::io {

/// On every rank that can see the file: any of them may be the last to live. Removed when this
/// object dies before finish(), on a signal that ends this process (so a launcher ends the other
/// ranks of a failed job), and before sudden_exit(). Signals that are ignored, as under nohup, stay
/// so. One at a time in a process.
class Unfinished {
 public:
  Unfinished() = default;
  ~Unfinished() { remove(); }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  /// Before the file is created. `rank`, in the communicator that opens it through MPI: OMPIO makes
  /// the files path.data.RANK and path.metadata.RANK beside it, for file pointers that nobody uses.
  void begin(const std::string& path, int rank = -1);
  void opened();  ///< it is open: OMPIO's files are unlinked
  void remove();  ///< unlinks it
  void finish();  ///< it has its final name now

 private:
  std::string path_;
};

/// Where a result of process `pid` that will be `path` is written: no name is too long for it, and
/// nothing stands there.
std::string unfinished_name(const std::string& path, int pid);
/// Gives the finished file `temporary` the name `path`, on one rank. `taken`: another program has
/// written there meanwhile; then the name is the first free one of `path`.1, .2, ..., which the error
/// tells (Exit::resources), with `beside`.
void give_name(const std::string& temporary, const std::string& path, bool taken,
               const std::string& beside = "");
/// Whether something has that name, a broken link too.
bool name_is_taken(const std::string& path);
/// Free bytes where `path` lies; a large number when the system does not say.
long long free_bytes(const std::string& path);
/// Whether files there lie in memory (tmpfs), whose pages come one by one: 6 GB/s.
bool lies_in_memory(const std::string& path);
/// Why no file may hold that many bytes (ulimit -f); empty where one may.
std::string why_too_large(long long bytes);
/// Has the disk keep `bytes` bytes of `path` from `from` on free for it, its size unchanged; empty, or
/// why not. A file system that cannot promise is no failure, nor is a file that is gone: then
/// `promised` is false.
std::string reserve_space(const std::string& path, long long from, long long bytes, bool& promised);
/// Folder of `path`, "." when it has none.
std::string folder_of(const std::string& path);
/// Opens a new file without a name in `folder`, to read and write: whatever ends this process leaves
/// nothing there. -1 with errno where none can be made.
int open_nameless(const std::string& folder);
/// Empty when a file can be made in `folder`, else why not.
std::string why_not_writable(const std::string& folder);
/// Gets the data of `path` to the disk; empty, or why not.
std::string sync_file(const std::string& path);

}  // namespace terrace::io
