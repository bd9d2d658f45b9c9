// Tables: all combinations of a few variables that satisfy the conditions between them, listed depth first in blocks
// of lanes. Rows come out in lexicographic order of the variables' order in the table.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "model.hpp"
#include "slab.hpp"

namespace constrint {

struct Axis {
  std::vector<int64_t> values;
  // Where each value stands in the declared domain.
  std::vector<uint16_t> places;
  Interval bounds() const { return interval_of(values); }
};

struct Table {
  std::vector<int> variables;
  std::vector<SlabVector<uint16_t>> columns;
  size_t num_rows = 0;
};

// Raised by what ends beside a search: every search then looks at once, not after twenty milliseconds.
inline std::atomic<uint32_t> num_rings{0};

// Budget of a search and its interruption: `poll` checks clocks and signals and returns false to stop. It is
// called a millisecond after the start and every twenty from then on, as long as the work is reported by `tick`; once
// more, whatever the clock says, when so much work is done that the search counts as hard.
class Budget {
 public:
  int64_t max_cells = 0, max_rows = 0, max_bytes = 0;
  int64_t cells = 0, bytes = 0;
  // Takes the combinations so far, and whether the search counts as hard.
  std::function<bool(int64_t, bool)> poll;

  // Counts combinations on which conditions are evaluated.
  void spend(int64_t more);
  // Reports work; a unit is a nanosecond or a few.
  void tick(int64_t work) {
    if ((left_ -= work) <= 0) look();
  }
  // Counts memory about to be allocated, and memory released.
  void take(int64_t more, const std::vector<int>& variables);
  void give(int64_t less) { bytes -= less; }
  // Where memory is short, blocks of this thread go back to the system as soon as they are given back.
  void return_blocks() const;
  // Counts more rows of a table, and makes room for them.
  void add_rows(Table& table, int64_t more);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int64_t kBetweenLooks = 1 << 16;
  // Looks before a search counts as hard: a count of work, the same on any machine.
  static constexpr int kHard = 16;
  void look();
  void grow(Table& table, size_t rows);

  int64_t left_ = kBetweenLooks;
  int num_looks_ = 0;
  uint32_t rings_ = num_rings;
  Clock::time_point next_ = Clock::now() + std::chrono::milliseconds(1);
};

// Memory that is counted during the lifetime of this object.
class Held {
 public:
  Held(Budget& budget, const std::vector<int>& variables) : budget_(budget), variables_(variables) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { budget_.give(bytes_); }
  void take(int64_t more) {
    bytes_ += more;
    budget_.take(more, variables_);
  }
  void give(int64_t less) {
    bytes_ -= less;
    budget_.give(less);
  }

 private:
  Budget& budget_;
  const std::vector<int>& variables_;
  int64_t bytes_ = 0;
};

// Calls `work` on pieces of 0..count, so that a long loop can be ended.
template <typename F>
void in_pieces(size_t count, Budget& budget, F work) {
  constexpr size_t kPiece = size_t{1} << 15;
  for (size_t start = 0; start < count; start += kPiece) {
    size_t end = count - start < kPiece ? count : start + kPiece;
    budget.tick(2 * static_cast<int64_t>(end - start));
    work(start, end);
  }
}

enum class Limit { kCells, kRows, kBytes, kStopped };

struct LimitReached {
  Limit what;
  int64_t number;
  std::vector<int> variables;
};

// Every combination of `variables` that satisfies `checks` (conditions over these variables alone).
Table build_table(const Model& model, const std::vector<int>& variables, const std::vector<int>& checks,
                  const std::vector<Axis>& axes, const std::vector<Interval>& bounds, Budget& budget);

// The nodes below some conditions, operands first.
std::vector<int> nodes_below(const Model& model, const std::vector<int>& roots);

}  // namespace constrint
