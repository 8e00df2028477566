#include "io/rereading.hpp"

#include <algorithm>

#include "distrib/agree.hpp"
#include "io/input_file.hpp"
#include "io/portions.hpp"
#include "io/stored.hpp"
#include "io/volume.hpp"
#include "kernels/base/hash.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/timeline.hpp"

namespace terrace::io {
namespace {

constexpr Index part_bytes = Index(512) << 10;  // of a thread at a time: stays in its cache
constexpr Index shortest_run = 4096;

/// Numbers of one run of the file, in their 8-byte form.
struct Numbers {
  Stored stored;
  Element element;
  bool words = false;
  std::string where;

  /// `count` from element `first` of the dataset on, in `buffer`.
  Word* read(Index first, Index count, std::vector<char>& buffer) const {
    const Index bytes = count * element.bytes;
    const bool as_is =
        element.bytes == 8 && !element.swapped && (words || element.form == Element::Form::f64);
    buffer.resize(std::size_t(std::max<Index>(Index(buffer.size()), 8 * count + bytes)));
    char* const raw = buffer.data() + (as_is ? 0 : 8 * count);
    read_at(stored.descriptor, stored.offset + first * element.bytes, bytes, raw, where);
    count_volume(bytes, 0);
    auto* const out = reinterpret_cast<Word*>(buffer.data());
    if (words)
      to_words(element, raw, out, count);
    else
      to_doubles(element, raw, reinterpret_cast<double*>(out), count);
    return out;
  }
};

}  // namespace

std::unique_ptr<Rereading> Rereading::of(std::shared_ptr<const InputFile> file, const What& what,
                                         std::span<const Range> ranges) {
  const Object& object = file->object;
  const InputFile::Source& source = file->source();
  const Handle type(H5Dget_type(source.dataset), &H5Tclose);
  const auto element = element_of(type);
  if (!element || (what.words && element->bytes != 8)) return nullptr;
  const Numbers numbers{where_stored(source.file, source.dataset, object, file->where()), *element,
                        what.words, file->where()};
  if (numbers.stored.way != Stored::Way::direct) return nullptr;
  const bool flat = object.dims.size() == 1;
  const Index items = object.dims[std::size_t(what.axis)];
  const Index width = flat ? 1 : object.dims[std::size_t(1 - what.axis)];
  std::unique_ptr<Rereading> made(new Rereading);
  made->file_ = std::move(file);
  auto& parts = made->parts_;
  const auto counts = [items, band = what.band](Index i, Index k) {
    return !band || i + k < items;
  };
  const auto add_rows = [&](Range run) {  // items that are rows of the file
    parts.emplace_back([=](std::vector<char>& buffer) {
      const Word* at = numbers.read(run.first * width, run.count * width, buffer);
      Word sum = 0;
      for (Index i = run.first; i < run.end(); ++i)
        for (Index k = 0; k < width; ++k, ++at)
          sum += hash_element(counts(i, k) ? *at : 0, i * width + k);
      return sum;
    });
  };
  const auto add_columns = [&](Range run, Index from,
                               Index to) {  // numbers [from, to) of the items
    parts.emplace_back([=](std::vector<char>& buffer) {
      Word sum = 0;
      for (Index k = from; k < to; ++k) {
        const Word* at = numbers.read(k * items + run.first, run.count, buffer);
        for (Index i = run.first; i < run.end(); ++i, ++at)
          sum += hash_element(counts(i, k) ? *at : 0, i * width + k);
      }
      return sum;
    });
  };
  Portion merged;
  for (const Range& range : ranges) merged.add(range);
  for (const Range& range : merged.ranges) {
    if (width == 0) continue;
    if (what.axis == 0) {
      const Index most = std::max<Index>(1, part_bytes / 8 / width);
      for (Index at = 0; at < range.count; at += most)
        add_rows({range.first + at, std::min(most, range.count - at)});
      continue;
    }
    const Index most = std::min(range.count, part_bytes / 8);
    if (most * element->bytes < shortest_run && range.count < items) return nullptr;
    const Index deep = std::max<Index>(1, part_bytes / 8 / most);
    for (Index at = 0; at < range.count; at += most)
      for (Index k = 0; k < width; k += deep)
        add_columns({range.first + at, std::min(most, range.count - at)}, k,
                    std::min(width, k + deep));
  }
  return made;
}

void Rereading::work() {
  const double from = timeline_now();
  std::vector<char> buffer;
  for (;;) {
    const std::size_t mine = next_++;
    if (mine >= parts_.size()) break;
    if (const auto failed = failure_of([&] { sum_ += parts_[mine](buffer); })) {
      const std::lock_guard lock(mutex_);
      failed_ = failed;
      next_ = parts_.size();
    }
  }
  note_span("file", "read again", from);
}

void Rereading::begin() {
  // One core drives the solve, another prepares the output.
  const std::size_t most = std::size_t(std::max(1, thread_count() - 2));
  for (std::size_t t = 0; t < std::min(most, parts_.size()); ++t)
    threads_.emplace_back([this] { work(); });
}

Word Rereading::finish() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  if (failed_) throw *failed_;
  if (const auto shorter = file_->shortened()) throw *shorter;
  return sum_;
}

Rereading::~Rereading() {
  next_ = parts_.size();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace terrace::io
