// Memory of listed columns: byte arrays that numpy looks into.
#pragma once

#include <memory>
#include <vector>

#include "python.hpp"
#include "slab.hpp"

namespace constrint {
namespace {

// Room for columns in one byte array, or in one each where they are long. The first write to each page of fresh memory
// costs more than the values on it, so larger blocks begin on a large page, and large pages are requested.
class Columns {
 public:
  explicit Columns(const std::vector<size_t>& sizes) : blocks_(sizes.size()), offsets_(sizes.size()) {
    size_t together = 0;
    std::vector<size_t> short_ones;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] >= kLong) {
        offsets_[i] = block(sizes[i], {i});
        continue;
      }
      short_ones.push_back(i);
      offsets_[i] = together;
      // Each column is aligned for every type.
      together += (sizes[i] + kLine - 1) / kLine * kLine;
    }
    const size_t first = short_ones.empty() ? 0 : block(together, short_ones);
    for (size_t i : short_ones) offsets_[i] += first;
  }
  char* data(size_t i) const { return PyByteArray_AsString(blocks_[i]->get()) + offsets_[i]; }
  PyObject* block(size_t i) const { return blocks_[i]->get(); }
  size_t offset(size_t i) const { return offsets_[i]; }

 private:
  static constexpr size_t kLine = 64, kLong = 2 * kLargePage;
  // Fewer bytes than these on a large page are not worth clearing all of it.
  static constexpr size_t kWorth = kLargePage / 4;

  // Makes a byte array for some columns; tells where in it they begin.
  size_t block(size_t bytes, const std::vector<size_t>& users) {
    const bool large = bytes >= kWorth;
    const size_t asked = large ? (bytes + kLargePage - 1) / kLargePage * kLargePage + kLargePage : bytes + kLine;
    auto made = std::make_shared<Ref>(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(asked)));
    for (size_t i : users) blocks_[i] = made;
    const uintptr_t at = reinterpret_cast<uintptr_t>(PyByteArray_AsString(made->get()));
    const size_t line = large ? kLargePage : kLine, first = (line - at % line) % line;
    const size_t rest = bytes % kLargePage, advised = bytes - rest + (rest >= kWorth ? kLargePage : 0);
    if (large) expect_writes(PyByteArray_AsString(made->get()) + first, advised);
    return first;
  }

  std::vector<std::shared_ptr<Ref>> blocks_;
  std::vector<size_t> offsets_;
};

}  // namespace
}  // namespace constrint
