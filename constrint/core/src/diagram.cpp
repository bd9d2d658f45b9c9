#include "diagram.hpp"

#include <algorithm>
#include <unordered_map>

namespace constrint {

namespace {

// A sum over fewer variables is as well listed.
constexpr size_t kManyTerms = 8;
// Memory of an arc, and of a state beside its words.
constexpr int64_t kArcBytes = 10, kStateBytes = 64;
// Marks a sum whose rule holds for all remaining values.
constexpr int64_t kSettled = INT64_MAX;

struct SumRule {
  Op op;
  LinearSum sum;
  // Per level: the coefficient of its variable (0 for none), and the range of what comes after it.
  std::vector<int64_t> coefficient, least, most;
  int last_level = 0;
};

struct OtherRule {
  std::vector<int> nodes;
  int last_level = 0;
};

bool is_sum(const Model& model, const Prepared& prepared, int check, SumRule* rule) {
  const Node& n = model.nodes[check];
  if (n.op != Op::kLe && n.op != Op::kLt && n.op != Op::kEq && n.op != Op::kNe) return false;
  if (prepared.bounds[n.args[0]].undefined || prepared.bounds[n.args[1]].undefined) return false;
  rule->op = n.op == Op::kLt ? Op::kLe : n.op;
  if (!linear_sum(model, prepared, n.args[0], n.args[1], &rule->sum)) return false;
  if (n.op == Op::kLt) rule->sum.number -= 1;
  return true;
}

class DiagramBuilder {
 public:
  DiagramBuilder(const Model& model, const Prepared& prepared, const std::vector<int>& variables)
      : model_(model), prepared_(prepared), variables_(variables), narrowing_(model) {
    for (const Axis& axis : prepared.axes) trial_.push_back(axis.bounds());
    level_of_.assign(prepared.axes.size(), -1);
    for (size_t i = 0; i < variables.size(); ++i) level_of_[variables[i]] = static_cast<int>(i);
    for (size_t i = 0; i < prepared.checks.size(); ++i) {
      if (level_of_[first_of(prepared.scopes[i])] >= 0) add(prepared.checks[i], prepared.scopes[i]);
    }
    kept_.resize(variables.size() + 1);
    for (size_t level = 0; level <= variables.size(); ++level) {
      for (size_t v = 0; v < level; ++v) {
        if (needed_until_[v] >= static_cast<int>(level)) kept_[level].push_back(static_cast<int>(v));
      }
    }
  }

  bool run(size_t max_arcs, Budget& budget, Diagram* diagram) {
    std::vector<int64_t> start;
    for (const SumRule& rule : sums_) start.push_back(rule.sum.number);
    std::vector<std::vector<int64_t>> states = {start};
    size_t num_arcs = 0;
    int64_t before_bytes = 0;
    Held held(budget, variables_);
    for (size_t level = 0; level < variables_.size(); ++level) {
      Layer layer;
      layer.variable = variables_[level];
      layer.num_states = static_cast<uint32_t>(states.size());
      std::unordered_map<std::vector<int64_t>, uint32_t, Hash> known;
      std::vector<std::vector<int64_t>> reached;
      std::vector<int64_t> after;
      int64_t level_bytes = 0;
      const std::vector<int64_t>& values = prepared_.axes[layer.variable].values;
      for (size_t s = 0; s < states.size(); ++s) {
        budget.spend(static_cast<int64_t>(values.size() * (1 + sums_.size())));
        for (size_t place = 0; place < values.size(); ++place) {
          if (!follow(level, states[s], static_cast<int>(place), values[place], &after)) continue;
          auto [at, is_new] = known.emplace(after, static_cast<uint32_t>(reached.size()));
          if (is_new) reached.push_back(after);
          layer.from.push_back(static_cast<uint32_t>(s));
          layer.places.push_back(static_cast<uint16_t>(place));
          layer.to.push_back(at->second);
        }
        if (num_arcs + layer.from.size() > max_arcs) return false;
        // Vectors double while both sizes exist; a state stands in the list and in the map.
        const int64_t arcs = static_cast<int64_t>(layer.from.size()), known_states = static_cast<int64_t>(reached.size());
        const int64_t now = arcs * 3 * kArcBytes + known_states * 2 * (kStateBytes + 8 * static_cast<int64_t>(after.size()));
        held.take(now - level_bytes);
        level_bytes = now;
      }
      num_arcs += layer.from.size();
      // The map goes, and of vectors and lists one copy stays; the states of the level before go, too.
      const int64_t states_bytes = static_cast<int64_t>(reached.size()) * (kStateBytes + 8 * static_cast<int64_t>(after.size()));
      held.give(level_bytes - states_bytes - static_cast<int64_t>(layer.from.size()) * 2 * kArcBytes + before_bytes);
      before_bytes = states_bytes;
      diagram->layers.push_back(std::move(layer));
      states = std::move(reached);
    }
    prune(diagram);
    return true;
  }

 private:
  struct Hash {
    size_t operator()(const std::vector<int64_t>& state) const {
      uint64_t hash = 0x9E3779B97F4A7C15u;
      for (int64_t word : state) hash = (hash ^ static_cast<uint64_t>(word)) * 0xD6E8FEB86659FD93u, hash ^= hash >> 32;
      return static_cast<size_t>(hash);
    }
  };

  void add(int check, const Set& scope) {
    size_t n = variables_.size();
    if (needed_until_.empty()) needed_until_.assign(n, -1);
    int last = -1;
    for (size_t i = 0; i < n; ++i) {
      if (scope[variables_[i]]) last = static_cast<int>(i);
    }
    SumRule rule;
    if (is_sum(model_, prepared_, check, &rule)) {
      rule.last_level = last;
      rule.coefficient.assign(n, 0);
      rule.least.assign(n + 1, 0);
      rule.most.assign(n + 1, 0);
      for (size_t i = 0; i < rule.sum.variables.size(); ++i) {
        rule.coefficient[level_of_[rule.sum.variables[i]]] = rule.sum.coefficients[i];
      }
      for (size_t level = n; level-- > 0;) {
        Interval x = prepared_.axes[variables_[level]].bounds();
        int64_t c = rule.coefficient[level];
        rule.least[level] = rule.least[level + 1] + (c > 0 ? c * x.lower : c * x.upper);
        rule.most[level] = rule.most[level + 1] + (c > 0 ? c * x.upper : c * x.lower);
      }
      sums_.push_back(std::move(rule));
      return;
    }
    OtherRule other{nodes_below(model_, {check}), last};
    for (size_t i = 0; i < n; ++i) {
      // A value is needed at every level up to the one that completes the rule.
      if (scope[variables_[i]]) needed_until_[i] = std::max(needed_until_[i], last);
    }
    others_.push_back(std::move(other));
  }

  // The state after one more value; false where a rule fails. A state is what is left of every sum, then the places of
  // earlier variables that other rules still need.
  bool follow(size_t level, const std::vector<int64_t>& state, int place, int64_t value, std::vector<int64_t>* after) {
    after->assign(state.begin(), state.begin() + static_cast<long>(sums_.size()));
    for (size_t r = 0; r < sums_.size(); ++r) {
      const SumRule& rule = sums_[r];
      int64_t& rest = (*after)[r];
      if (rest == kSettled) continue;
      rest -= rule.coefficient[level] * value;
      int64_t least = rule.least[level + 1], most = rule.most[level + 1];
      if (rule.op == Op::kLe) {
        if (rest < least) return false;
        if (rest >= most) rest = kSettled;
      } else if (rule.op == Op::kEq) {
        if (rest < least || rest > most) return false;
        if (least == most) rest = kSettled;
      } else {
        if (least == most && rest == least) return false;
        if (rest < least || rest > most) rest = kSettled;
      }
    }
    const std::vector<int>& before = kept_[level];
    for (size_t i = 0; i < before.size(); ++i) {
      int64_t known = prepared_.axes[variables_[before[i]]].values[static_cast<size_t>(state[sums_.size() + i])];
      trial_[variables_[before[i]]] = {known, known, false};
    }
    trial_[variables_[level]] = {value, value, false};
    for (const OtherRule& rule : others_) {
      if (rule.last_level == static_cast<int>(level) && narrowing_.evaluate(rule.nodes, trial_).lower != 1) return false;
    }
    size_t i = 0;
    for (int v : kept_[level + 1]) {
      if (v == static_cast<int>(level)) {
        after->push_back(place);
        continue;
      }
      while (before[i] != v) ++i;
      after->push_back(state[sums_.size() + i]);
    }
    return true;
  }

  // Drops states from which no solution is reachable.
  static void prune(Diagram* diagram) {
    std::vector<uint32_t> renumbered = {0};
    for (size_t level = diagram->layers.size(); level-- > 0;) {
      Layer& layer = diagram->layers[level];
      std::vector<uint32_t> above(layer.num_states, UINT32_MAX);
      size_t kept = 0;
      uint32_t num_states = 0;
      for (size_t arc = 0; arc < layer.from.size(); ++arc) {
        if (renumbered[layer.to[arc]] == UINT32_MAX) continue;
        uint32_t& source = above[layer.from[arc]];
        if (source == UINT32_MAX) source = num_states++;
        layer.from[kept] = source;
        layer.to[kept] = renumbered[layer.to[arc]];
        layer.places[kept++] = layer.places[arc];
      }
      layer.from.resize(kept);
      layer.to.resize(kept);
      layer.places.resize(kept);
      layer.num_states = num_states;
      diagram->num_arcs += kept;
      renumbered = std::move(above);
    }
  }

  const Model& model_;
  const Prepared& prepared_;
  const std::vector<int>& variables_;
  Narrowing narrowing_;
  std::vector<Interval> trial_;
  std::vector<int> level_of_, needed_until_;
  std::vector<SumRule> sums_;
  std::vector<OtherRule> others_;
  std::vector<std::vector<int>> kept_;
};

}  // namespace

std::vector<std::vector<int64_t>> Diagram::paths() const {
  std::vector<std::vector<int64_t>> found(layers.size() + 1);
  found.back() = {1};
  for (size_t level = layers.size(); level-- > 0;) {
    const Layer& layer = layers[level];
    found[level].assign(layer.num_states, 0);
    for (size_t arc = 0; arc < layer.from.size(); ++arc) {
      int64_t& total = found[level][layer.from[arc]];
      total += found[level + 1][layer.to[arc]];
      if (total > kMaxMagnitude) throw Unsupported{};
    }
  }
  return found;
}

namespace {

// The column of one layer: every beginning of a path is repeated for each of its ends.
template <typename T>
void list_layer(const Layer& layer, const std::vector<int64_t>& values, const std::vector<int64_t>& ends, int64_t inner,
                std::vector<uint32_t>& states, T* out) {
  std::vector<uint32_t> starts(layer.num_states + 1, 0), after;
  for (uint32_t from : layer.from) ++starts[from + 1];
  for (size_t s = 0; s < layer.num_states; ++s) starts[s + 1] += starts[s];
  after.reserve(states.size());
  for (uint32_t state : states) {
    for (uint32_t arc = starts[state]; arc < starts[state + 1]; ++arc) {
      int64_t count = ends[layer.to[arc]] * inner;
      out = std::fill_n(out, count, static_cast<T>(values[layer.places[arc]]));
      after.push_back(layer.to[arc]);
    }
  }
  states = std::move(after);
}

}  // namespace

void list_paths(const Diagram& diagram, const std::vector<Axis>& axes, int64_t inner, const std::vector<char*>& columns) {
  std::vector<std::vector<int64_t>> paths = diagram.paths();
  std::vector<uint32_t> states = {0};
  for (size_t level = 0; level < diagram.layers.size(); ++level) {
    const Layer& layer = diagram.layers[level];
    const Axis& axis = axes[layer.variable];
    const std::vector<int64_t>& ends = paths[level + 1];
    char* out = columns[layer.variable];
    switch (value_bytes(axis)) {
      case 1: list_layer(layer, axis.values, ends, inner, states, reinterpret_cast<int8_t*>(out)); break;
      case 2: list_layer(layer, axis.values, ends, inner, states, reinterpret_cast<int16_t*>(out)); break;
      case 4: list_layer(layer, axis.values, ends, inner, states, reinterpret_cast<int32_t*>(out)); break;
      default: list_layer(layer, axis.values, ends, inner, states, reinterpret_cast<int64_t*>(out));
    }
  }
}

bool suits_diagram(const Model& model, const Prepared& prepared, const std::vector<int>& variables) {
  Set mine;
  for (int v : variables) mine.set(v);
  for (size_t i = 0; i < prepared.checks.size(); ++i) {
    SumRule rule;
    if (prepared.scopes[i].count() < kManyTerms || (prepared.scopes[i] & mine).none()) continue;
    if (is_sum(model, prepared, prepared.checks[i], &rule)) return true;
  }
  return false;
}

bool build_diagram(const Model& model, const Prepared& prepared, const std::vector<int>& variables, size_t max_arcs,
                   Budget& budget, Diagram* diagram) {
  return DiagramBuilder(model, prepared, variables).run(max_arcs, budget, diagram);
}

}  // namespace constrint
