// Budget of a search: combinations, rows, memory and time.
#include <algorithm>

#include "table.hpp"

namespace constrint {

namespace {

// Rows up to which a table grows fourfold; longer tables grow in larger steps, so that rows are seldom moved.
constexpr size_t kShortTable = size_t{1} << 13, kLongTable = size_t{1} << 18;

}  // namespace

void Budget::spend(int64_t more) {
  cells += more;
  if (cells > max_cells) throw LimitReached{Limit::kCells, cells, {}};
  tick(64);
}

void Budget::look() {
  left_ = kBetweenLooks;
  const Clock::time_point now = Clock::now();
  if (now < next_ || !poll) return;
  const bool goes_on = poll(cells);
  next_ = Clock::now() + std::chrono::milliseconds(20);
  if (!goes_on) throw LimitReached{Limit::kStopped, cells, {}};
}

void Budget::take(int64_t more, const std::vector<int>& variables) {
  bytes += more;
  if (max_bytes && bytes > max_bytes) throw LimitReached{Limit::kBytes, bytes, variables};
}

void Budget::add_rows(Table& table, int64_t more) {
  const size_t rows = table.num_rows + static_cast<size_t>(more);
  // Links between tables are numbers of 32 bits.
  if (static_cast<int64_t>(rows) > max_rows || rows >= UINT32_MAX) {
    throw LimitReached{Limit::kRows, static_cast<int64_t>(rows), table.variables};
  }
  if (!table.columns.empty() && rows > table.columns[0].capacity()) {
    const size_t before = table.columns[0].capacity(), row_bytes = sizeof(uint16_t) * table.columns.size();
    size_t after = std::max(rows, before < kShortTable ? 4 * before : before < kLongTable ? kLongTable : 2 * before);
    // Where memory is short, reserve only a little more than needed.
    if (max_bytes && bytes + static_cast<int64_t>((after - before) * row_bytes) > max_bytes) after = rows + rows / 8;
    take(static_cast<int64_t>((after - before) * row_bytes), table.variables);
    const Slab::Shared together(table.columns.size(), after * sizeof(uint16_t));
    for (SlabVector<uint16_t>& column : table.columns) {
      tick(static_cast<int64_t>(before));
      column.reserve(after);
    }
  }
  table.num_rows = rows;
}

}  // namespace constrint
