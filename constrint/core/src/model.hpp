// A problem as the compiled core sees it: listed domains and hash-consed nodes of exact integer expressions and
// conditions, with proven bounds. Numbers beyond 62 bits are refused (Unsupported): Python integers take over.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace constrint {

// Variables beyond this number, or values beyond this magnitude, are left to the Python path.
constexpr int kMaxVariables = 384;
constexpr int64_t kMaxMagnitude = int64_t{1} << 62;
constexpr size_t kMaxDomain = 4096;
constexpr int kMaxDepth = 200;

using Set = std::bitset<kMaxVariables>;

struct Unsupported {};

// The quotient rounded down.
template <typename T>
inline T floor_quotient(T a, T b) {
  const T q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

inline int first_of(const Set& set) {
  for (int v = 0; v < kMaxVariables; ++v) {
    if (set[v]) return v;
  }
  return -1;
}

// The order is part of the encoding: constrint/model/encode.py and operations.py name the same numbers.
enum class Op : uint8_t {
  kVar, kConst, kAdd, kMul, kNeg, kAbs, kFloorDiv, kCeilDiv, kDiv, kMod, kPow, kMin, kMax, kGcd, kLcm,
  // kTruth: a condition as 1 or 0; kElement: the item that an index selects.
  kBitAnd, kBitOr, kBitXor, kTruth, kElement,
  // kTable: the values of the operands together are a row of a table.
  kEq, kNe, kLe, kLt, kDivides, kInList, kInRange, kTable, kAnd, kOr, kNot,
  // In an encoding only: an operation that was written before.
  kAgain,
};

inline bool is_condition(Op op) { return op >= Op::kEq; }

struct Node {
  Op op = Op::kConst;
  // kVar: the variable; kConst: the number; kInList: the list; kInRange: the list of lower, upper, step; kTable: the
  // table.
  int64_t value = 0;
  std::vector<int> args;
  Set variables;
  int depth = 1;
};

struct Interval {
  int64_t lower = 0, upper = 0;
  // True where some assignment may give no value (a division by zero, an inexact quotient).
  bool undefined = false;
  // True where no assignment gives a value.
  bool never = false;
  bool point() const { return lower == upper && !undefined; }
};

// Listed combinations of values: every value becomes its place in its column, every row a key.
class RowTable {
 public:
  RowTable(const std::vector<int64_t>& rows, size_t width);
  size_t width() const { return columns_.size(); }
  size_t num_rows() const { return num_rows_; }
  // Place of a value in a column, -1 where no row has it.
  int64_t place(size_t column, int64_t value) const;
  // How many values a column has.
  uint64_t size(size_t column) const { return columns_[column].values.size(); }
  bool has(uint64_t key) const;
  // Whether some row may lie within these bounds; true where that would take long to find out.
  bool may_have(const std::vector<Interval>& bounds) const;
  // Bounds of the rows within these bounds, or of all rows where these are many; false where there are none.
  bool hull(const std::vector<Interval>& bounds, std::vector<Interval>* found) const;

 private:
  struct Column {
    std::vector<int64_t> values;
    // The place of every number from the least value to the largest, where these are few.
    std::vector<int32_t> places;
  };
  std::vector<Column> columns_;
  size_t num_rows_ = 0;
  std::vector<int64_t> rows_;
  // One bit per key where there are few, else the keys in order.
  std::vector<bool> dense_;
  std::vector<uint64_t> keys_;
};

class Model {
 public:
  std::vector<std::string> names;
  std::vector<std::vector<int64_t>> domains;
  std::vector<Node> nodes;
  std::vector<std::vector<int64_t>> lists;
  std::vector<RowTable> tables;
  // Conditions that must hold; conjunctions are split up.
  std::vector<int> roots;

  int variable(int index);
  int constant(int64_t value);
  int node(Op op, std::vector<int> args, int64_t value = 0);
  int list(std::vector<int64_t> values);
  int table(const std::vector<int64_t>& rows, size_t width);
  // Whether a number has a value for any integers.
  bool is_total(int node) const;
  void require(int condition);

  // Bounds of every node, given the bounds of the variables; conditions lie in 0..1.
  std::vector<Interval> bounds(const std::vector<Interval>& variables) const;
  Interval bounds_of(const Node& node, const std::vector<Interval>& known,
                     const std::vector<Interval>& variables) const;

 private:
  Interval plain_bounds_of(const Node& node, const std::vector<Interval>& known,
                           const std::vector<Interval>& variables) const;
  Interval equality(const Node& node, const std::vector<Interval>& known) const;
  void require(int condition, std::vector<bool>& seen);
  int divided(int condition);
  void forget(int node);
  std::unordered_multimap<uint64_t, int> known_, known_lists_;
  // Nodes that no condition needs any more.
  std::vector<bool> forgotten_;
  bool is_forgotten(size_t node) const { return node < forgotten_.size() && forgotten_[node]; }
};

Interval interval_of(const std::vector<int64_t>& values);

}  // namespace constrint
