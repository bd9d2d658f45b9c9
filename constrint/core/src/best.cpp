// The best row of a factored space by an expression.
#include <algorithm>

#include "lanes.hpp"
#include "space.hpp"

namespace constrint {

namespace {

// The table whose rows hold all these variables and all extend to solutions; null where there is none.
const Table* covering(const Space& space, const Set& open) {
  for (const Part& part : space.parts) {
    if (part.nodes.empty()) continue;
    Set held;
    for (int v : part.nodes[0].table.variables) held.set(v);
    if ((open & ~held).none()) return &part.nodes[0].table;
  }
  return nullptr;
}

template <typename T>
class Search {
 public:
  Search(const Model& model, const Space& space, const Table& table, int expression, bool maximise,
         const std::vector<Interval>& bounds)
      : model_(model), space_(space), table_(table), expression_(expression), maximise_(maximise), lanes_(model, bounds, table.num_rows),
        nodes_(nodes_below(model, {expression})) {
    // Declared order decides between equally good rows.
    for (int v = 0; v < static_cast<int>(space.axes.size()); ++v) {
      auto at = std::find(table.variables.begin(), table.variables.end(), v);
      if (at == table.variables.end() || !model.nodes[expression].variables[v]) continue;
      columns_.push_back(static_cast<size_t>(at - table.variables.begin()));
    }
    for (int node : nodes_) {
      if (model.nodes[node].op == Op::kConst) lanes_.fill_constant(node);
    }
  }

  // The best row; -1 where the expression has no value in any.
  int64_t run(Budget& budget) {
    for (size_t start = 0; start < table_.num_rows; start += kLanes) {
      budget.tick(static_cast<int64_t>(kLanes * nodes_.size()));
      int n = static_cast<int>(std::min<size_t>(kLanes, table_.num_rows - start));
      for (int node : nodes_) fill(node, start, n);
      const T* values = lanes_.values(expression_);
      const uint8_t* defined = lanes_.defined(expression_);
      for (int i = 0; i < n; ++i) {
        if (!defined || defined[i]) consider(static_cast<int64_t>(start) + i, values[i]);
      }
    }
    return best_;
  }

 private:
  void fill(int node, size_t start, int n) {
    const Node& it = model_.nodes[node];
    if (it.op != Op::kVar) {
      lanes_.compute(node, n);
      return;
    }
    const Axis& axis = space_.axes[it.value];
    auto at = std::find(table_.variables.begin(), table_.variables.end(), static_cast<int>(it.value));
    T* out = lanes_.values(node);
    if (at == table_.variables.end()) {
      std::fill_n(out, n, static_cast<T>(axis.values[0]));
      return;
    }
    const uint16_t* places = table_.columns[static_cast<size_t>(at - table_.variables.begin())].data() + start;
    for (int i = 0; i < n; ++i) out[i] = static_cast<T>(axis.values[places[i]]);
  }

  void consider(int64_t row, T value) {
    if (best_ >= 0) {
      if (maximise_ ? value < extreme_ : value > extreme_) return;
      if (value == extreme_ && !precedes(row)) return;
    }
    best_ = row;
    extreme_ = value;
  }

  bool precedes(int64_t row) const {
    for (size_t c : columns_) {
      uint16_t mine = table_.columns[c][row], other = table_.columns[c][best_];
      if (mine != other) return mine < other;
    }
    return false;
  }

  const Model& model_;
  const Space& space_;
  const Table& table_;
  int expression_;
  bool maximise_;
  Lanes<T> lanes_;
  std::vector<int> nodes_;
  std::vector<size_t> columns_;
  int64_t best_ = -1;
  T extreme_ = 0;
};

}  // namespace

std::vector<Choice> best_choice(const Model& model, const Space& space, int expression, bool maximise,
                                Budget& budget) {
  std::vector<Interval> variables;
  for (const Axis& axis : space.axes) variables.push_back(axis.bounds());
  std::vector<Interval> bounds = model.bounds(variables);
  Set open = model.nodes[expression].variables & ~space.fixed;
  const Table* table = open.any() ? covering(space, open) : nullptr;
  if (!table) throw Unsupported{};
  int64_t row = fits_32(bounds, nodes_below(model, {expression}), model)
                    ? Search<int32_t>(model, space, *table, expression, maximise, bounds).run(budget)
                    : Search<int64_t>(model, space, *table, expression, maximise, bounds).run(budget);
  if (row < 0) throw Unsupported{};
  std::vector<Choice> choices;
  for (size_t c = 0; c < table->variables.size(); ++c) {
    int v = table->variables[c];
    if (open[v]) choices.push_back({v, space.axes[v].values[table->columns[c][row]]});
  }
  return choices;
}

}  // namespace constrint
