// Narrows the bounds of variables by a condition: bounds propagate up the expression, requirements down.
#pragma once

#include <vector>

#include "store.hpp"

namespace constrint {

class Narrowing {
 public:
  explicit Narrowing(const Model& model) : model_(model), known_(model.nodes.size()), need_(model.nodes.size(), 0) {}

  // Bounds of the last of `nodes` (what stands below it, operands first), given what is left of the variables.
  const Interval& evaluate(const std::vector<int>& nodes, const std::vector<Interval>& variables);
  // Narrows to values that can satisfy the condition at the end of `nodes`; false where none can.
  bool require(const std::vector<int>& nodes, Store& store, bool* entailed);
  // Narrows to values that can bring the expression at the end of `nodes` between two numbers; false where none can.
  bool within(const std::vector<int>& nodes, int64_t lower, int64_t upper, Store& store);

 private:
  using Wide = __int128;
  enum : uint8_t { kNothing, kHolds, kFails, kValue };

  bool descend(const std::vector<int>& nodes, Store& store);
  bool cut(int node, Wide lower, Wide upper);
  bool condition(const Node& n, bool holds);
  bool compare(Op op, int a, int b);
  bool number(const Node& n, const Interval& range);
  bool sum(const Node& n, const Interval& range);
  bool product(const Node& n, const Interval& range);
  bool factor(int node, Wide low, Wide high, const Interval& range);
  bool quotient(const Node& n, const Interval& range);
  bool extreme(const Node& n, const Interval& range);
  bool power(const Node& n, const Interval& range);
  bool element(const Node& n, const Interval& range);
  bool row(const Node& n);
  void want(int node, uint8_t need) {
    if (need_[node] == kNothing) need_[node] = need;
  }

  const Model& model_;
  std::vector<Interval> known_;
  std::vector<uint8_t> need_;
};

}  // namespace constrint
