// Budget of a search: combinations, rows, memory and time.
#include <algorithm>

#include "table.hpp"

namespace constrint {

namespace {

// Rows up to which a table grows fourfold; longer tables grow in larger steps, so that rows are seldom moved.
constexpr size_t kShortTable = size_t{1} << 13, kLongTable = size_t{1} << 18;

// With less memory than this, none is left in the heap.
constexpr int64_t kLittleMemory = int64_t{1} << 29;

// The columns of a table lie side by side where they take less than this part of the memory.
constexpr int64_t kShare = 8;

}  // namespace

void Budget::spend(int64_t more) {
  cells += more;
  if (cells > max_cells) throw LimitReached{Limit::kCells, cells, {}};
  tick(64);
}

void Budget::look() {
  left_ = kBetweenLooks;
  if (!poll) return;
  num_looks_ += num_looks_ < kHard + 1;
  const uint32_t rings = num_rings.load(std::memory_order_relaxed);
  if (num_looks_ != kHard && rings == rings_ && Clock::now() < next_) return;
  rings_ = rings;
  const bool goes_on = poll(cells, num_looks_ >= kHard);
  next_ = Clock::now() + std::chrono::milliseconds(20);
  if (!goes_on) throw LimitReached{Limit::kStopped, cells, {}};
}

void Budget::take(int64_t more, const std::vector<int>& variables) {
  bytes += more;
  if (max_bytes && bytes > max_bytes) throw LimitReached{Limit::kBytes, bytes, variables};
}

void Budget::return_blocks() const {
  Slab::mapped_from() = max_bytes && max_bytes < kLittleMemory ? 0 : Slab::kUsuallyMapped;
}

void Budget::add_rows(Table& table, int64_t more) {
  const size_t rows = table.num_rows + static_cast<size_t>(more);
  // Links between tables are numbers of 32 bits.
  if (static_cast<int64_t>(rows) > max_rows || rows >= UINT32_MAX) {
    throw LimitReached{Limit::kRows, static_cast<int64_t>(rows), table.variables};
  }
  if (!table.columns.empty() && rows > table.columns[0].capacity()) grow(table, rows);
  table.num_rows = rows;
}

void Budget::grow(Table& table, size_t rows) {
  const size_t before = table.columns[0].capacity(), number = table.columns.size();
  size_t after = std::max(rows, before < kShortTable ? 4 * before : before < kLongTable ? kLongTable : 2 * before);
  const auto size = [](size_t count) { return static_cast<int64_t>(count * sizeof(uint16_t)); };
  // Columns that lie side by side are given back together, the others one by one. Where memory is short, these get room
  // for a few more rows only.
  const auto together = [&](size_t count) { return !max_bytes || size(number * count) * kShare < max_bytes; };
  if (max_bytes && bytes + size(number * after) > max_bytes) after = rows + rows / 8;
  const int64_t moved = size(together(before) || together(after) ? number * before : before);
  take(size(number * (after - before)) + moved, table.variables);
  return_blocks();
  const Slab::Shared block(together(after) ? number : 1, size(after));
  for (SlabVector<uint16_t>& column : table.columns) {
    tick(static_cast<int64_t>(before));
    column.reserve(after);
  }
  give(moved);
}

}  // namespace constrint
