// One expression over columns of values.
#include <algorithm>

#include "lanes.hpp"
#include "space.hpp"

namespace constrint {

namespace {

template <typename T>
bool evaluate_lanes(const Model& model, int expression, const std::vector<Interval>& bounds,
                    const std::vector<const int64_t*>& columns, int64_t rows, int64_t* out,
                    Budget& budget) {
  Lanes<T> lanes(model, bounds, static_cast<size_t>(rows));
  std::vector<int> nodes = nodes_below(model, {expression});
  for (int node : nodes) lanes.fill_constant(node);
  for (int64_t start = 0; start < rows; start += kLanes) {
    int n = static_cast<int>(std::min<int64_t>(kLanes, rows - start));
    budget.tick(static_cast<int64_t>(kLanes * nodes.size()));
    for (int node : nodes) {
      const Node& it = model.nodes[node];
      if (it.op == Op::kVar) {
        const int64_t* from = columns[it.value] + start;
        std::transform(from, from + n, lanes.values(node), [](int64_t v) { return static_cast<T>(v); });
      } else {
        lanes.compute(node, n);
      }
    }
    if (const uint8_t* defined = lanes.defined(expression)) {
      if (std::count(defined, defined + n, uint8_t{0})) return false;
    }
    std::copy_n(lanes.values(expression), n, out + start);
  }
  return true;
}

}  // namespace

// Values of an expression whose variables are these columns; Unsupported where some row has none.
void evaluate(const Model& model, int expression, const std::vector<const int64_t*>& columns, int64_t rows, int64_t* out,
              Budget& budget) {
  std::vector<Interval> variables;
  for (const int64_t* column : columns) {
    Interval range{column[0], column[0]};
    in_pieces(static_cast<size_t>(rows), budget, [&](size_t start, size_t end) {
      auto [low, high] = std::minmax_element(column + start, column + end);
      range.lower = std::min(range.lower, *low);
      range.upper = std::max(range.upper, *high);
    });
    if (range.lower <= -kMaxMagnitude || range.upper >= kMaxMagnitude) throw Unsupported{};
    variables.push_back(range);
  }
  std::vector<Interval> bounds = model.bounds(variables);
  bool found = fits_32(bounds, nodes_below(model, {expression}), model)
                   ? evaluate_lanes<int32_t>(model, expression, bounds, columns, rows, out, budget)
                   : evaluate_lanes<int64_t>(model, expression, bounds, columns, rows, out, budget);
  if (!found) throw Unsupported{};
}

}  // namespace constrint
