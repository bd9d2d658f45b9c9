#include <algorithm>
#include <numeric>

#include "lanes.hpp"
#include "space.hpp"

namespace constrint {

namespace {

// Values of one open variable that satisfy a condition; the others in it are fixed.
std::vector<bool> passing(const Model& model, int condition, int variable, const std::vector<Axis>& axes,
                          const std::vector<Interval>& bounds) {
  const std::vector<int64_t>& values = axes[variable].values;
  Lanes<int64_t> lanes(model, bounds, values.size());
  std::vector<int> nodes = nodes_below(model, {condition});
  std::vector<bool> found;
  for (size_t start = 0; start < values.size(); start += kLanes) {
    int n = static_cast<int>(std::min<size_t>(kLanes, values.size() - start));
    for (int node : nodes) {
      const Node& it = model.nodes[node];
      if (it.op == Op::kVar && it.value == variable) {
        std::copy_n(values.begin() + start, n, lanes.values(node));
      } else if (it.op == Op::kVar) {
        std::fill_n(lanes.values(node), n, axes[it.value].values[0]);
      } else {
        lanes.fill_constant(node);
        lanes.compute(node, n);
      }
    }
    const uint8_t* verdict = lanes.truth(condition);
    found.insert(found.end(), verdict, verdict + n);
  }
  return found;
}

void keep(Axis& axis, const std::vector<bool>& passing) {
  Axis kept;
  for (size_t i = 0; i < passing.size(); ++i) {
    if (!passing[i]) continue;
    kept.values.push_back(axis.values[i]);
    kept.places.push_back(axis.places[i]);
  }
  axis = std::move(kept);
}

std::vector<Interval> variable_bounds(const std::vector<Axis>& axes) {
  std::vector<Interval> bounds;
  for (const Axis& axis : axes) bounds.push_back(axis.bounds());
  return bounds;
}

}  // namespace

Prepared prepare(const Model& model, Budget& budget) {
  Prepared state;
  for (size_t v = 0; v < model.domains.size(); ++v) {
    Axis axis;
    axis.values = model.domains[v];
    axis.places.resize(axis.values.size());
    std::iota(axis.places.begin(), axis.places.end(), uint16_t{0});
    if (axis.values.size() == 1) state.fixed.set(v);
    state.axes.push_back(std::move(axis));
  }
  std::vector<int> waiting = model.roots;
  bool again = true;
  while (again && state.feasible) {
    again = false;
    // Bounds are computed on the remaining values only: without overflow there, evaluation is exact.
    state.bounds = model.bounds(variable_bounds(state.axes));
    budget.tick(static_cast<int64_t>(16 * model.nodes.size()));
    std::vector<int> later;
    for (int check : waiting) {
      if (state.bounds[check].lower == 1) continue;
      Set open = model.nodes[check].variables & ~state.fixed;
      if (state.bounds[check].upper == 0) {
        state.feasible = false;
      } else if (open.count() > 1) {
        later.push_back(check);
        continue;
      } else {
        int variable = first_of(open.any() ? open : model.nodes[check].variables);
        // A condition between numbers that its bounds did not decide is evaluated on any axis.
        if (variable < 0) variable = 0;
        Axis& axis = state.axes[variable];
        std::vector<bool> passes = passing(model, check, variable, state.axes, state.bounds);
        budget.tick(static_cast<int64_t>(16 * model.nodes.size()));
        budget.spend(static_cast<int64_t>(passes.size()));
        size_t count = static_cast<size_t>(std::count(passes.begin(), passes.end(), true));
        if (count == passes.size()) continue;
        if (count == 0) {
          state.feasible = false;
        } else {
          keep(axis, passes);
          again = true;
          if (count == 1) state.fixed.set(variable);
        }
      }
      if (!state.feasible) return state;
    }
    waiting = std::move(later);
  }
  state.bounds = model.bounds(variable_bounds(state.axes));
  for (int check : waiting) {
    if (state.bounds[check].lower == 1) continue;
    state.checks.push_back(check);
    state.scopes.push_back(model.nodes[check].variables & ~state.fixed);
  }
  return state;
}

}  // namespace constrint
