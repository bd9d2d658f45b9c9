#include "propagate.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace constrint {

namespace {

using Wide = __int128;
constexpr int64_t kMaxCoefficient = int64_t{1} << 50;

// Adds `factor` times an expression; false where it is no sum of variables.
bool add_terms(const Model& model, const Prepared& prepared, int node, Wide factor, std::map<int, Wide>& terms, Wide* number) {
  const Node& n = model.nodes[node];
  if (factor > kMaxCoefficient || factor < -Wide{kMaxCoefficient}) return false;
  if (n.op == Op::kConst) {
    *number -= factor * n.value;
  } else if (n.op == Op::kVar) {
    int v = static_cast<int>(n.value);
    if (prepared.fixed[v]) {
      *number -= factor * prepared.axes[v].values[0];
    } else {
      terms[v] += factor;
    }
  } else if (n.op == Op::kNeg) {
    return add_terms(model, prepared, n.args[0], -factor, terms, number);
  } else if (n.op == Op::kAdd) {
    for (int a : n.args) {
      if (!add_terms(model, prepared, a, factor, terms, number)) return false;
    }
  } else if (n.op == Op::kMul) {
    int open = -1;
    for (int a : n.args) {
      const Interval& bounds = prepared.bounds[a];
      if (bounds.point() && !bounds.never) {
        factor *= bounds.lower;
        if (factor > kMaxCoefficient || factor < -Wide{kMaxCoefficient}) return false;
      } else if (open >= 0) {
        return false;
      } else {
        open = a;
      }
    }
    if (open < 0) {
      *number -= factor;
    } else {
      return add_terms(model, prepared, open, factor, terms, number);
    }
  } else {
    const Interval& bounds = prepared.bounds[node];
    if (!bounds.point() || bounds.never) return false;
    *number -= factor * bounds.lower;
  }
  return true;
}

}  // namespace

bool linear_sum(const Model& model, const Prepared& prepared, int left, int right, LinearSum* sum) {
  std::map<int, Wide> terms;
  Wide number = 0;
  if (!add_terms(model, prepared, left, 1, terms, &number)) return false;
  if (right >= 0 && !add_terms(model, prepared, right, -1, terms, &number)) return false;
  Wide most = number < 0 ? -number : number;
  sum->variables.clear();
  sum->coefficients.clear();
  for (auto [v, factor] : terms) {
    if (factor == 0) continue;
    Interval bounds = prepared.axes[v].bounds();
    most += (factor < 0 ? -factor : factor) * std::max(bounds.upper < 0 ? -Wide{bounds.upper} : Wide{bounds.upper},
                                                       bounds.lower < 0 ? -Wide{bounds.lower} : Wide{bounds.lower});
    if (factor > kMaxCoefficient || factor < -Wide{kMaxCoefficient} || most > kMaxMagnitude / 2) return false;
    sum->variables.push_back(v);
    sum->coefficients.push_back(static_cast<int64_t>(factor));
  }
  sum->number = static_cast<int64_t>(number);
  // The width of a term is at most twice this, which 64 bits hold.
  return most <= kMaxMagnitude / 2;
}

Propagation::Propagation(const Model& model, const Prepared& prepared, const std::vector<int>& variables)
    : store(model, prepared.axes), narrowing(model), model_(model), weights_(prepared.axes.size(), 1) {
  Set mine;
  for (int v : variables) mine.set(v);
  for (size_t i = 0; i < prepared.checks.size(); ++i) {
    if ((prepared.scopes[i] & mine).any()) add(prepared.checks[i], prepared);
  }
  add_cliques();
  watch();
  wake_all();
}

void Propagation::add(int check, const Prepared& prepared) {
  const Node& n = model_.nodes[check];
  Rule rule;
  bool compares = n.op == Op::kLe || n.op == Op::kLt || n.op == Op::kEq || n.op == Op::kNe;
  bool defined = compares && !prepared.bounds[n.args[0]].undefined && !prepared.bounds[n.args[1]].undefined;
  if (defined && linear_sum(model_, prepared, n.args[0], n.args[1], &rule.sum) && !rule.sum.variables.empty()) {
    rule.kind = n.op == Op::kEq ? Kind::kEqual : n.op == Op::kNe ? Kind::kDifferent : Kind::kAtMost;
    if (n.op == Op::kLt) rule.sum.number -= 1;
    rule.variables = rule.sum.variables;
    if (rule.kind == Kind::kAtMost || rule.kind == Kind::kEqual) at_most_.push_back(rule.sum);
    if (rule.kind == Kind::kEqual) {
      int64_t divisor = 0;
      for (int64_t c : rule.sum.coefficients) divisor = std::gcd(divisor, c);
      feasible_ &= rule.sum.number % divisor == 0;
      at_most_.push_back(rule.sum);
      LinearSum& turned = at_most_.back();
      turned.number = -turned.number;
      for (int64_t& c : turned.coefficients) c = -c;
    }
  } else {
    rule.kind = Kind::kGeneral;
    rule.nodes = nodes_below(model_, {check});
    for (size_t v = 0; v < prepared.axes.size(); ++v) {
      if (n.variables[v] && !prepared.fixed[v]) rule.variables.push_back(static_cast<int>(v));
    }
  }
  rules_.push_back(std::move(rule));
}

// Variables that differ pairwise, found greedily, become one more rule: it sees that they need as many values.
void Propagation::add_cliques() {
  size_t n = weights_.size();
  std::vector<Set> apart(n), covered(n);
  for (const Rule& rule : rules_) {
    const std::vector<int>& v = rule.variables;
    if (rule.kind != Kind::kDifferent || v.size() != 2 || rule.sum.number != 0) continue;
    if (rule.sum.coefficients[0] != -rule.sum.coefficients[1] || model_.domains[v[0]].size() != model_.domains[v[1]].size()) continue;
    if (store.values(v[0]) != store.values(v[1])) continue;
    apart[v[0]].set(v[1]);
    apart[v[1]].set(v[0]);
  }
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = a + 1; b < n; ++b) {
      if (!apart[a][b] || covered[a][b]) continue;
      std::vector<int> members = {static_cast<int>(a), static_cast<int>(b)};
      Set common = apart[a] & apart[b];
      for (size_t c = 0; c < n; ++c) {
        if (!common[c]) continue;
        members.push_back(static_cast<int>(c));
        common &= apart[c];
      }
      for (int x : members) {
        for (int y : members) covered[x].set(y);
      }
      if (members.size() < 3) continue;
      Rule rule;
      rule.kind = Kind::kAllDifferent;
      rule.variables = std::move(members);
      rules_.push_back(std::move(rule));
    }
  }
}

void Propagation::watch() {
  on_fixed_.resize(weights_.size());
  on_bounds_.resize(weights_.size());
  on_holes_.resize(weights_.size());
  for (size_t i = 0; i < rules_.size(); ++i) {
    Kind kind = rules_[i].kind;
    auto& lists = kind == Kind::kDifferent ? on_fixed_ : kind == Kind::kAllDifferent ? on_holes_ : on_bounds_;
    for (int v : rules_[i].variables) lists[v].push_back(static_cast<int>(i));
  }
}

void Propagation::wake_all() {
  for (size_t i = 0; i < rules_.size(); ++i) wake(static_cast<int>(i));
}

bool Propagation::run(Budget& budget) {
  size_t next = 0;
  bool fits = feasible_;
  while (fits) {
    int v;
    uint8_t events;
    while (store.take_change(&v, &events)) {
      for (int rule : on_holes_[v]) wake(rule);
      if (events & Store::kBounds) {
        for (int rule : on_bounds_[v]) wake(rule);
      }
      if (events & Store::kFixed) {
        for (int rule : on_fixed_[v]) wake(rule);
      }
    }
    if (next == queue_.size()) break;
    Rule& rule = rules_[queue_[next++]];
    rule.queued = false;
    budget.spend(static_cast<int64_t>(1 + rule.nodes.size() / 4 + rule.sum.variables.size() / 8));
    budget.tick(static_cast<int64_t>(8 * rule.nodes.size() + 4 * rule.variables.size()));
    if (!apply(rule, budget)) {
      for (int w : rule.variables) weights_[w] += 1;
      fits = false;
      break;
    }
    if (next > 4096) {
      queue_.erase(queue_.begin(), queue_.begin() + static_cast<long>(next));
      next = 0;
    }
  }
  if (!fits) {
    for (; next < queue_.size(); ++next) rules_[queue_[next]].queued = false;
    store.forget_changes();
  }
  queue_.clear();
  return fits;
}

bool Propagation::apply(const Rule& rule, Budget& budget) {
  switch (rule.kind) {
    case Kind::kAtMost: return at_most(rule.sum, false);
    case Kind::kEqual: return at_most(rule.sum, false) && at_most(rule.sum, true);
    case Kind::kDifferent: return different(rule.sum);
    case Kind::kAllDifferent: return all_different(rule);
    case Kind::kGeneral: break;
  }
  return general(rule, budget);
}

// The sum is at most the number; or at least, where `upwards`: then all signs are turned.
bool Propagation::at_most(const LinearSum& sum, bool upwards) {
  int64_t sign = upwards ? -1 : 1, slack = sign * sum.number, widest = 0;
  size_t n = sum.variables.size();
  for (size_t i = 0; i < n; ++i) {
    const Interval& x = store.bounds()[sum.variables[i]];
    int64_t c = sign * sum.coefficients[i];
    slack -= c > 0 ? c * x.lower : c * x.upper;
    widest = std::max(widest, (c > 0 ? c : -c) * (x.upper - x.lower));
  }
  if (slack < 0) return false;
  if (widest <= slack) return true;
  for (size_t i = 0; i < n; ++i) {
    int v = sum.variables[i];
    const Interval x = store.bounds()[v];
    int64_t c = sign * sum.coefficients[i];
    if (c > 0 && c * (x.upper - x.lower) > slack) {
      if (!store.at_most(v, x.lower + slack / c)) return false;
    } else if (c < 0 && -c * (x.upper - x.lower) > slack) {
      if (!store.at_least(v, x.upper - slack / -c)) return false;
    }
  }
  return true;
}

bool Propagation::different(const LinearSum& sum) {
  int64_t rest = sum.number;
  int open = -1;
  int64_t factor = 0;
  for (size_t i = 0; i < sum.variables.size(); ++i) {
    int v = sum.variables[i];
    if (store.fixed(v)) {
      rest -= sum.coefficients[i] * store.bounds()[v].lower;
    } else if (open >= 0) {
      return true;
    } else {
      open = v, factor = sum.coefficients[i];
    }
  }
  if (open < 0) return rest != 0;
  if (rest % factor != 0) return true;
  int place = store.place_of(open, rest / factor);
  return place < 0 || store.remove(open, place);
}

bool Propagation::all_different(const Rule& rule) {
  size_t words = static_cast<size_t>(store.num_words(rule.variables[0])), num_values = 0;
  once_.assign(words, 0);
  twice_.assign(words, 0);
  for (int v : rule.variables) {
    const uint64_t* bits = store.words(v);
    for (size_t w = 0; w < words; ++w) twice_[w] |= once_[w] & bits[w], once_[w] |= bits[w];
  }
  for (uint64_t word : once_) num_values += std::bitset<64>(word).count();
  if (num_values < rule.variables.size()) return false;
  if (num_values > rule.variables.size()) return true;
  // Every value is needed: one that fits a single variable is that variable's.
  for (int v : rule.variables) {
    if (store.fixed(v)) continue;
    const uint64_t* bits = store.words(v);
    int only = -1;
    for (size_t w = 0; w < words; ++w) {
      uint64_t alone = bits[w] & once_[w] & ~twice_[w];
      if (!alone) continue;
      if (only >= 0 || (alone & (alone - 1))) return false;
      for (int bit = 0; bit < 64; ++bit) {
        if (alone >> bit & 1) only = static_cast<int>(w) * 64 + bit;
      }
    }
    if (only >= 0 && !store.assign(v, only)) return false;
  }
  return true;
}

bool Propagation::general(const Rule& rule, Budget& budget) {
  bool entailed = false;
  if (!narrowing.require(rule.nodes, store, &entailed)) return false;
  if (entailed) return true;
  int open = -1;
  for (int v : rule.variables) {
    if (store.fixed(v)) continue;
    if (open >= 0) return true;
    open = v;
  }
  if (open < 0) return narrowing.evaluate(rule.nodes, store.bounds()).lower == 1;
  // One variable is left: each of its values is tried.
  budget.spend(static_cast<int64_t>(rule.nodes.size()) * store.size(open) / 4);
  budget.tick(static_cast<int64_t>(8 * rule.nodes.size()) * store.size(open));
  failing_.clear();
  trial_ = store.bounds();
  for (int place = store.first(open), last = store.last(open);; place = store.after(open, place)) {
    int64_t value = store.value(open, place);
    trial_[open] = {value, value, false};
    if (narrowing.evaluate(rule.nodes, trial_).upper == 0) failing_.push_back(place);
    if (place == last) break;
  }
  if (static_cast<int>(failing_.size()) == store.size(open)) return false;
  for (int place : failing_) {
    if (!store.remove(open, place)) return false;
  }
  return true;
}

}  // namespace constrint
