// Tables: all combinations of a few variables that satisfy the conditions between them, listed depth first in blocks
// of lanes. Rows come out in lexicographic order of the variables' order in the table.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model.hpp"

namespace constrint {

struct Axis {
  std::vector<int64_t> values;
  // Where each value stands in the declared domain.
  std::vector<uint16_t> places;
  Interval bounds() const { return interval_of(values); }
};

struct Table {
  std::vector<int> variables;
  std::vector<std::vector<uint16_t>> columns;
  size_t num_rows = 0;
};

// What a search may spend; `poll` looks at clocks and signals and returns false to stop.
struct Budget {
  int64_t max_cells = 0, max_rows = 0, max_bytes = 0;
  int64_t cells = 0, bytes = 0;
  int64_t poll_every = 0, next_poll = 0;
  std::function<bool(int64_t)> poll;

  void spend(int64_t more);
  void add_rows(Table& table, int64_t more);
};

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
