#include "diagram_rules.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace constrint {

namespace {

using Wide = __int128;

constexpr int64_t kMostModulus = int64_t{1} << 31;
// Numbers that are found by their place.
constexpr int64_t kMostSpan = 1 << 14;

bool is_sum(const Model& model, const Prepared& prepared, int check, SumRule* rule) {
  const Node& n = model.nodes[check];
  if (n.op != Op::kLe && n.op != Op::kLt && n.op != Op::kEq && n.op != Op::kNe) return false;
  if (prepared.bounds[n.args[0]].undefined || prepared.bounds[n.args[1]].undefined) return false;
  rule->op = n.op == Op::kLt ? Op::kLe : n.op;
  if (!linear_sum(model, prepared, n.args[0], n.args[1], &rule->sum)) return false;
  if (n.op == Op::kLt) rule->sum.number -= 1;
  return true;
}

// Whether a node is gathered from parts of one variable each, two of them at least.
bool is_separable(const Model& model, const Prepared& prepared, int node) {
  const Node& n = model.nodes[node];
  if (n.op != Op::kAdd && n.op != Op::kMul && n.op != Op::kMin && n.op != Op::kMax) return false;
  if (prepared.bounds[node].undefined) return false;
  for (int a : n.args) {
    if ((model.nodes[a].variables & ~prepared.fixed).count() > 1) return false;
  }
  return true;
}

}  // namespace

DiagramRules::DiagramRules(const Model& model, const Prepared& prepared, const std::vector<int>& variables)
    : model_(model), prepared_(prepared), variables_(variables), known_(prepared.bounds), level_of_(prepared.axes.size(), -1),
      gathered_of_(model.nodes.size(), -1) {
  for (size_t i = 0; i < variables.size(); ++i) level_of_[variables[i]] = static_cast<int>(i);
  for (size_t i = 0; i < prepared.checks.size(); ++i) {
    if (level_of_[first_of(prepared.scopes[i])] >= 0) add(prepared.checks[i]);
  }
  take_remainders();
  plan();
}

DiagramSize DiagramRules::size() const {
  if (!whole_) return {};
  size_t most = 0;
  for (const FunctionRule& rule : functions_) most = std::max(most, rule.chained ? rule.gathered.size() : 0);
  for (const SumRule& rule : sums_) most = std::max(most, rule.sum.variables.size());
  for (const Gathered& of : gathered_) {
    most = std::max<size_t>(most, std::count_if(of.parts.begin(), of.parts.end(), [](const auto& part) { return !part.empty(); }));
  }
  return {most, most_arcs()};
}

std::pair<int64_t, int64_t> DiagramRules::window(size_t level) const {
  if (active_[level].size() != 1 || active_[level][0] >= sums_.size()) return {0, 0};
  const SumRule& rule = sums_[active_[level][0]];
  const int64_t number = rule.sum.number;
  const int64_t least = std::max(rule.least[level], number - (rule.most[0] - rule.most[level]));
  const int64_t most = std::min(rule.most[level], number - (rule.least[0] - rule.least[level]));
  return {least, most - least < kMostSpan ? std::max<int64_t>(0, most - least + 1) : 0};
}

double DiagramRules::most_arcs() const {
  if (!functions_.empty() || sums_.size() != 1) return kUnknown;
  const SumRule& rule = sums_[0];
  double arcs = 0, front = 0;
  for (size_t level = 0; level < variables_.size(); ++level) {
    const double values = static_cast<double>(prepared_.axes[variables_[level]].values.size());
    const double back = static_cast<double>(rule.most[level]) - static_cast<double>(rule.least[level]);
    const double rest = static_cast<double>(rule.sum.number) - static_cast<double>(rule.least[0]);
    arcs += values * (2 + std::max(0.0, std::min({front, back, rule.op == Op::kNe ? front : rest})));
    front += back - (static_cast<double>(rule.most[level + 1]) - static_cast<double>(rule.least[level + 1]));
  }
  return arcs;
}

void DiagramRules::add(int check) {
  const size_t n = variables_.size();
  SumRule rule;
  if (!is_sum(model_, prepared_, check, &rule)) {
    FunctionRule function;
    collect(check, function);
    for (int g : function.gathered) function.last_level = std::max(function.last_level, gathered_[g].last_level);
    function.chained = function.gathered.size() > 2;
    for (int g : function.gathered) function.chained &= gathered_[g].first_level == gathered_[g].last_level;
    for (int g : function.gathered) {
      if (!function.chained) gathered_[g].used_until = std::max(gathered_[g].used_until, function.last_level);
    }
    if (function.chained) chain(function);
    functions_.push_back(std::move(function));
    return;
  }
  rule.coefficient.assign(n, 0);
  rule.least.assign(n + 1, 0);
  rule.most.assign(n + 1, 0);
  for (size_t i = 0; i < rule.sum.variables.size(); ++i) {
    rule.coefficient[level_of_[rule.sum.variables[i]]] = rule.sum.coefficients[i];
  }
  for (size_t level = n; level-- > 0;) {
    Interval x = prepared_.axes[variables_[level]].bounds();
    int64_t c = rule.coefficient[level];
    if (c) rule.first_level = static_cast<int>(level), rule.last_level = std::max(rule.last_level, rule.first_level);
    rule.least[level] = rule.least[level + 1] + (c > 0 ? c * x.lower : c * x.upper);
    rule.most[level] = rule.most[level + 1] + (c > 0 ? c * x.upper : c * x.lower);
  }
  sums_.push_back(std::move(rule));
}

void DiagramRules::chain(FunctionRule& rule) {
  for (int g : rule.gathered) {
    const Gathered& of = gathered_[g];
    rule.known.push_back({of.node, g, of.first_level, of.last_level, -1});
  }
  for (int node : rule.nodes) {
    FunctionRule::Known here{node, -1, static_cast<int>(variables_.size()), -1, -1};
    const Set open = model_.nodes[node].variables & ~prepared_.fixed;
    for (size_t level = 0; level < variables_.size(); ++level) {
      if (!open[variables_[level]]) continue;
      here.first_level = std::min(here.first_level, static_cast<int>(level));
      here.last_level = static_cast<int>(level);
    }
    rule.known.push_back(here);
  }
  std::unordered_map<int, size_t> place;
  for (size_t i = 0; i < rule.known.size(); ++i) place[rule.known[i].node] = i;
  for (const FunctionRule::Known& above : rule.known) {
    if (above.gathered >= 0) continue;
    for (int a : model_.nodes[above.node].args) {
      const auto below = place.find(a);
      if (below == place.end()) continue;
      int& until = rule.known[below->second].used_until;
      until = std::max(until, above.last_level);
    }
  }
  rule.known.back().used_until = rule.last_level;
}

void DiagramRules::collect(int node, FunctionRule& rule) {
  const Set open = model_.nodes[node].variables & ~prepared_.fixed;
  if (open.none()) return;
  if (std::find(rule.nodes.begin(), rule.nodes.end(), node) != rule.nodes.end()) return;
  int at = gathered_of_[node];
  if (at < 0 && !is_condition(model_.nodes[node].op)) at = gather(node, open);
  if (at >= 0) {
    gathered_of_[node] = at;
    if (std::find(rule.gathered.begin(), rule.gathered.end(), at) == rule.gathered.end()) rule.gathered.push_back(at);
    return;
  }
  if (model_.nodes[node].op == Op::kVar) whole_ = false;
  for (int a : model_.nodes[node].args) collect(a, rule);
  rule.nodes.push_back(node);
}

int DiagramRules::gather(int node, const Set& open) {
  const Node& n = model_.nodes[node];
  const size_t levels = variables_.size();
  Gathered of{Op::kAdd, node, 0, std::vector<std::vector<int64_t>>(levels), {}};
  LinearSum sum;
  if (prepared_.bounds[node].undefined) return -1;
  if (linear_sum(model_, prepared_, node, -1, &sum)) {
    of.start = -sum.number;
    for (size_t i = 0; i < sum.variables.size(); ++i) {
      std::vector<int64_t>& part = of.parts[level_of_[sum.variables[i]]];
      for (int64_t value : prepared_.axes[sum.variables[i]].values) part.push_back(sum.coefficients[i] * value);
    }
  } else if (open.count() == 1) {
    of.parts[level_of_[first_of(open)]] = values_of(node, first_of(open));
  } else if (is_separable(model_, prepared_, node)) {
    of.op = n.op;
    of.start = neutral(n.op);
    for (int a : n.args) {
      const Set mine = model_.nodes[a].variables & ~prepared_.fixed;
      if (mine.none()) {
        of.start = joined(n.op, of.start, prepared_.bounds[a].lower);
        continue;
      }
      const std::vector<int64_t> values = values_of(a, first_of(mine));
      std::vector<int64_t>& part = of.parts[level_of_[first_of(mine)]];
      if (part.empty()) {
        part = values;
        continue;
      }
      for (size_t i = 0; i < part.size(); ++i) {
        if (n.op == Op::kMul && Wide{part[i]} * values[i] != part[i] * values[i]) return -1;
        part[i] = joined(n.op, part[i], values[i]);
      }
    }
  } else {
    return -1;
  }
  if (!fits(of)) return -1;
  of.later.assign(levels + 1, Interval{neutral(of.op), neutral(of.op), false});
  for (size_t level = levels; level-- > 0;) {
    of.later[level] = of.later[level + 1];
    if (of.parts[level].empty()) continue;
    of.later[level] = joined(of.op, of.later[level], interval_of(of.parts[level]));
    of.first_level = static_cast<int>(level);
    of.last_level = std::max(of.last_level, static_cast<int>(level));
  }
  gathered_.push_back(std::move(of));
  return static_cast<int>(gathered_.size()) - 1;
}

bool DiagramRules::fits(const Gathered& of) {
  if (of.op == Op::kMin || of.op == Op::kMax) return true;
  auto size = [](int64_t a) { return a < 0 ? -Wide{a} : Wide{a}; };
  Wide most = of.op == Op::kMul ? std::max<Wide>(size(of.start), 1) : size(of.start);
  for (const std::vector<int64_t>& part : of.parts) {
    if (part.empty()) continue;
    const Interval range = interval_of(part);
    const Wide widest = std::max(size(range.lower), size(range.upper));
    most = of.op == Op::kMul ? most * std::max<Wide>(widest, 1) : most + widest;
    if (most > kMaxMagnitude / 2) return false;
  }
  return true;
}

std::vector<int64_t> DiagramRules::values_of(int node, int variable) {
  const std::vector<int> nodes = nodes_below(model_, {node});
  std::vector<Interval> known(model_.nodes.size()), trial;
  for (const Axis& axis : prepared_.axes) trial.push_back(axis.bounds());
  std::vector<int64_t> found;
  for (int64_t value : prepared_.axes[variable].values) {
    trial[variable] = {value, value, false};
    for (int below : nodes) known[below] = model_.bounds_of(model_.nodes[below], known, trial);
    found.push_back(known[node].lower);
  }
  return found;
}

void DiagramRules::take_remainders() {
  std::vector<bool> else_used(gathered_.size(), false);
  for (const FunctionRule& rule : functions_) {
    for (int node : rule.nodes) {
      const Node& n = model_.nodes[node];
      const size_t number = n.op == Op::kDivides ? 1 : 0;
      for (size_t i = 0; i < n.args.size(); ++i) {
        const int g = gathered_of_[n.args[i]];
        if (g < 0) continue;
        const Interval& by = known_[n.args[n.args.size() > 1 ? 1 - number : 0]];
        const bool divided = (n.op == Op::kDivides || n.op == Op::kMod) && i == number && by.point() && by.lower > 0 &&
                             (model_.nodes[n.args[1 - number]].variables & ~prepared_.fixed).none();
        Gathered& of = gathered_[g];
        if (!divided || (of.op != Op::kAdd && of.op != Op::kMul)) {
          else_used[g] = true;
          continue;
        }
        const int64_t before = std::max<int64_t>(of.modulus, 1), shared = std::gcd(before, by.lower);
        if (Wide{before} / shared * by.lower >= kMostModulus) else_used[g] = true;
        else of.modulus = before / shared * by.lower;
      }
    }
  }
  for (size_t g = 0; g < gathered_.size(); ++g) {
    Gathered& of = gathered_[g];
    if (else_used[g]) of.modulus = 0;
    if (!of.modulus) continue;
    of.start = remainder_of(of.start, of.modulus);
    for (std::vector<int64_t>& part : of.parts) {
      for (int64_t& value : part) value = remainder_of(value, of.modulus);
    }
  }
}

void DiagramRules::plan() {
  const size_t levels = variables_.size();
  sums_at_.resize(levels), gathered_at_.resize(levels), functions_at_.resize(levels), active_.resize(levels + 1);
  for (size_t level = 0; level < levels; ++level) {
    for (size_t r = 0; r < sums_.size(); ++r) {
      if (sums_[r].coefficient[level]) sums_at_[level].push_back(r);
    }
    for (size_t g = 0; g < gathered_.size(); ++g) {
      if (!gathered_[g].parts[level].empty()) gathered_at_[level].push_back(g);
    }
    for (size_t f = 0; f < functions_.size(); ++f) {
      bool here = false;
      for (int g : functions_[f].gathered) here |= !gathered_[g].parts[level].empty();
      if (here) functions_at_[level].push_back(f);
    }
    for (size_t r = 0; r < sums_.size(); ++r) {
      const bool begun = sums_[r].first_level >= 0 && sums_[r].first_level < static_cast<int>(level);
      if (begun && sums_[r].last_level >= static_cast<int>(level)) active_[level].push_back(r);
    }
    for (size_t g = 0; g < gathered_.size(); ++g) {
      const bool begun = gathered_[g].first_level >= 0 && gathered_[g].first_level < static_cast<int>(level);
      if (begun && gathered_[g].used_until >= static_cast<int>(level)) active_[level].push_back(sums_.size() + g);
    }
  }
  ranges_.resize(gathered_.size());
  size_t num_words = sums_.size() + gathered_.size();
  for (FunctionRule& rule : functions_) {
    rule.first_word = num_words;
    if (!rule.chained) continue;
    num_words += rule.known.size();
    for (size_t level = 0; level < levels; ++level) {
      for (size_t i = 0; i < rule.known.size(); ++i) {
        const FunctionRule::Known& here = rule.known[i];
        if (is_kept(here, level)) active_[level].push_back(rule.first_word + i);
      }
    }
  }
  before_.assign(num_words, kOpen);
  after_ = before_;
  for (size_t r = 0; r < sums_.size(); ++r) before_[r] = sums_[r].sum.number;
  for (size_t g = 0; g < gathered_.size(); ++g) before_[sums_.size() + g] = gathered_[g].start;
  places_of_.resize(gathered_.size());
  for (size_t g = 0; g < gathered_.size(); ++g) {
    if (gathered_[g].last_level < 0) continue;
    const std::vector<int64_t>& part = gathered_[g].parts[gathered_[g].last_level];
    for (size_t place = 0; place < part.size(); ++place) places_of_[g].push_back({part[place], static_cast<int>(place)});
    std::sort(places_of_[g].begin(), places_of_[g].end());
  }
  value_places_.resize(levels);
  for (const SumRule& rule : sums_) {
    if (rule.last_level < 0) continue;
    std::vector<std::pair<int64_t, int>>& places = value_places_[rule.last_level];
    const std::vector<int64_t>& values = prepared_.axes[variables_[rule.last_level]].values;
    if (rule.op != Op::kEq || !places.empty()) continue;
    for (size_t place = 0; place < values.size(); ++place) places.push_back({values[place], static_cast<int>(place)});
    std::sort(places.begin(), places.end());
  }
}

}  // namespace constrint
