#include "diagram.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

namespace constrint {

namespace {

using Wide = __int128;

// Memory of an arc.
constexpr int64_t kArcBytes = 10;
// Marks a number whose rules hold whatever comes.
constexpr int64_t kSettled = INT64_MAX;
constexpr int64_t kMostModulus = int64_t{1} << 31;
// Numbers and places of a list of choices.
constexpr double kMostChoices = 1 << 25;
// Numbers that are found by their place.
constexpr int64_t kMostSpan = 1 << 14;
// Words of a chained rule: a node that is computed anew, and one that has no value.
constexpr int64_t kOpen = INT64_MIN, kNever = INT64_MIN + 1;

// A rule between a sum of variables and a number.
struct SumRule {
  Op op;
  LinearSum sum;
  // Per level: the coefficient of its variable (0 for none), and the range of what comes after it.
  std::vector<int64_t> coefficient, least, most;
  int first_level = -1, last_level = -1;
};

// A sum, product or extreme of parts that depend on one variable each: what is known of it after some variables is one
// number.
struct Gathered {
  Op op;
  int node;
  // The number without any part.
  int64_t start;
  // Per level: the part for every place of its variable, none where it has no part; and the range of all later parts
  // together.
  std::vector<std::vector<int64_t>> parts;
  std::vector<Interval> later;
  // Only the remainder matters where this is not 0.
  int64_t modulus = 0;
  int first_level = -1, last_level = -1;
  // The last level of a rule about it.
  int used_until = -1;
};

// A rule about numbers that are gathered.
struct FunctionRule {
  std::vector<int> gathered;
  // What stands above those in the condition, operands first.
  std::vector<int> nodes;
  // None where its variables cancel out.
  int last_level = -1;
  // Of a rule about single variables not those are kept, but the nodes that are known and still looked at: the state of
  // an automaton, the beginning of a comparison in order.
  bool chained = false;
  struct Known {
    int node, gathered;
    int first_level, last_level;
    // The last level of a node above.
    int used_until;
  };
  // Gathered numbers, then the nodes in order; the first of their words.
  std::vector<Known> known;
  size_t first_word = 0;
};

// Places of a level's variable by the number that an equality asks of them.
struct Choices {
  // None where no rule has such a list.
  const FunctionRule* rule = nullptr;
  // The nodes of that number: one less another, -1 where nothing is taken away; then less, or divided by, what is
  // gathered so far, where that is not -1.
  int whole = -1, rest = -1, gathered = -1;
  int64_t least = 0, bytes = 0;
  std::vector<uint32_t> starts;
  std::vector<uint16_t> places;
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

int64_t joined(Op op, int64_t a, int64_t b) {
  switch (op) {
    case Op::kAdd: return a + b;
    case Op::kMul: return a * b;
    case Op::kMin: return std::min(a, b);
    default: return std::max(a, b);
  }
}

Interval joined(Op op, const Interval& a, const Interval& b) {
  if (op != Op::kMul) return {joined(op, a.lower, b.lower), joined(op, a.upper, b.upper), false};
  const int64_t corners[] = {a.lower * b.lower, a.lower * b.upper, a.upper * b.lower, a.upper * b.upper};
  const auto [low, high] = std::minmax_element(std::begin(corners), std::end(corners));
  return {*low, *high, false};
}

// What joins with any number without a change to it.
int64_t neutral(Op op) {
  return op == Op::kAdd ? 0 : op == Op::kMul ? 1 : op == Op::kMin ? kMaxMagnitude : -kMaxMagnitude;
}

int64_t remainder_of(int64_t a, int64_t modulus) {
  const int64_t rest = a % modulus;
  return rest < 0 ? rest + modulus : rest;
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

// States as rows of equally many words, each once and numbered in the order in which they came. Memory is counted before
// it is allocated, also what exists twice while it grows.
class States {
 public:
  // States of one word that lies in a range, or is settled, are found by their place in it.
  States(size_t width, Held& held, int64_t least = 0, int64_t span = 0) : width_(width), least_(least), span_(span), held_(held) {
    find_slots(span ? static_cast<size_t>(span) + 1 : 64);
  }
  States(const States&) = delete;
  States& operator=(const States&) = delete;
  ~States() { held_.give(bytes_of(room_) + slot_bytes()); }
  size_t size() const { return size_; }
  const int64_t* operator[](size_t state) const { return words_.data() + state * width_; }
  uint32_t number(const int64_t* words) {
    if (span_) {
      uint32_t& slot = slots_[static_cast<size_t>(words[0] == kSettled ? span_ : words[0] - least_)];
      if (slot == kFree) {
        if (size_ == room_) make_room();
        slot = static_cast<uint32_t>(size_++);
        words_.push_back(words[0]);
      }
      return slot;
    }
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < width_; ++i) hash = (hash ^ static_cast<uint64_t>(words[i])) * 0xD6E8FEB86659FD93u, hash ^= hash >> 32;
    for (size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at] == kFree) {
        if (size_ == room_) make_room();
        slots_[at] = static_cast<uint32_t>(size_);
        for (size_t i = 0; i < width_; ++i) words_.push_back(words[i]);
        hashes_.push_back(hash);
        if (2 * ++size_ > slots_.size()) find_slots(4 * slots_.size());
        return static_cast<uint32_t>(size_ - 1);
      }
      if (same(words, (*this)[slots_[at]])) return slots_[at];
    }
  }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;
  // Most states have one word or two: a call of memcmp would take longer than they do.
  bool same(const int64_t* a, const int64_t* b) const {
    size_t i = 0;
    while (i < width_ && a[i] == b[i]) ++i;
    return i == width_;
  }
  int64_t bytes_of(size_t states) const { return static_cast<int64_t>(states * (width_ * sizeof(int64_t) + sizeof(uint64_t))); }
  int64_t slot_bytes() const { return static_cast<int64_t>(slots_.size() * sizeof(uint32_t)); }
  void make_room() {
    const size_t room = room_ ? 2 * room_ : 32;
    held_.take(bytes_of(room));
    words_.reserve(room * width_);
    hashes_.reserve(room);
    held_.give(bytes_of(room_));
    room_ = room;
  }
  void find_slots(size_t number) {
    const int64_t before = slot_bytes();
    held_.take(static_cast<int64_t>(number * sizeof(uint32_t)));
    slots_.assign(number, kFree);
    held_.give(before);
    for (size_t state = 0; state < size_; ++state) {
      size_t at = hashes_[state] & (slots_.size() - 1);
      while (slots_[at] != kFree) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = static_cast<uint32_t>(state);
    }
  }
  size_t width_, size_ = 0, room_ = 0;
  int64_t least_, span_;
  Held& held_;
  SlabVector<int64_t> words_;
  SlabVector<uint64_t> hashes_;
  SlabVector<uint32_t> slots_;
};

// Room for more arcs of a layer, whose memory is counted as that of states.
void make_room(Layer& layer, size_t room, Held& held) {
  const int64_t before = static_cast<int64_t>(layer.from.capacity()) * kArcBytes;
  held.take(static_cast<int64_t>(room) * kArcBytes);
  layer.from.reserve(room), layer.to.reserve(room), layer.places.reserve(room);
  held.give(before);
}

// Gives back the room that a layer has beyond its arcs.
void fit(Layer& layer, Held& held) {
  const int64_t before = static_cast<int64_t>(layer.from.capacity()) * kArcBytes, after = static_cast<int64_t>(layer.from.size()) * kArcBytes;
  held.take(after);
  layer.from.shrink_to_fit(), layer.to.shrink_to_fit(), layer.places.shrink_to_fit();
  held.give(before);
}

class DiagramBuilder {
 public:
  DiagramBuilder(const Model& model, const Prepared& prepared, const std::vector<int>& variables)
      : model_(model), prepared_(prepared), variables_(variables), known_(prepared.bounds), level_of_(prepared.axes.size(), -1),
        gathered_of_(model.nodes.size(), -1) {
    for (size_t i = 0; i < variables.size(); ++i) level_of_[variables[i]] = static_cast<int>(i);
    for (size_t i = 0; i < prepared.checks.size(); ++i) {
      if (level_of_[first_of(prepared.scopes[i])] >= 0) add(prepared.checks[i]);
    }
    take_remainders();
    plan();
  }

  DiagramSize size() const {
    if (!whole_) return {};
    size_t most = 0;
    for (const FunctionRule& rule : functions_) most = std::max(most, rule.chained ? rule.gathered.size() : 0);
    for (const SumRule& rule : sums_) most = std::max(most, rule.sum.variables.size());
    for (const Gathered& of : gathered_) {
      most = std::max<size_t>(most, std::count_if(of.parts.begin(), of.parts.end(), [](const auto& part) { return !part.empty(); }));
    }
    return {most, most_arcs()};
  }

  bool run(size_t max_arcs, int64_t tries, Budget& budget, Diagram* diagram) {
    if (!whole_) throw Unsupported{};
    budget.return_blocks();
    Held held(budget, variables_);
    auto states = std::make_unique<States>(0, held);
    const int64_t nothing = 0;
    states->number(&nothing);
    size_t num_arcs = 0;
    const bool holds = constants_hold();
    for (size_t level = 0; level < variables_.size(); ++level) {
      Layer layer;
      layer.variable = variables_[level];
      layer.num_states = static_cast<uint32_t>(states->size());
      const auto [least, span] = window(level + 1);
      auto reached = std::make_unique<States>(active_[level + 1].size(), held, least, span);
      std::vector<int64_t> key(active_[level + 1].size());
      const int all = static_cast<int>(prepared_.axes[layer.variable].values.size());
      list_choices(level, states->size(), budget, held);
      for (size_t s = 0; s < states->size(); ++s) {
        for (size_t i = 0; i < active_[level].size(); ++i) before_[active_[level][i]] = (*states)[s][i];
        int first = 0, end = holds ? all : 0;
        if (holds) forced(level, &first, &end);
        const uint16_t* few = end - first > 1 ? listed(level, &first, &end) : nullptr;
        budget.spend(1 + (end - first));
        tries -= end - first;
        for (int at = first; at < end; ++at) {
          const int place = few ? few[at] : at;
          if (!follow(level, place)) continue;
          for (size_t i = 0; i < key.size(); ++i) key[i] = after_[active_[level + 1][i]];
          if (layer.from.size() == layer.from.capacity()) make_room(layer, std::max<size_t>(16, 2 * layer.from.size()), held);
          layer.from.push_back(static_cast<uint32_t>(s));
          layer.places.push_back(static_cast<uint16_t>(place));
          layer.to.push_back(reached->number(key.data()));
        }
        if (num_arcs + layer.from.size() > max_arcs || tries < 0 || vague_) return false;
      }
      num_arcs += layer.from.size();
      forget_choices(held);
      fit(layer, held);
      diagram->layers.push_back(std::move(layer));
      states = std::move(reached);
    }
    states.reset();
    prune(diagram, held);
    return true;
  }

 private:
  // Where what is left of a sum lies before a level, if that is all that has to be known there: the least number and how
  // many there are, 0 where these are too many.
  std::pair<int64_t, int64_t> window(size_t level) const {
    if (active_[level].size() != 1 || active_[level][0] >= sums_.size()) return {0, 0};
    const SumRule& rule = sums_[active_[level][0]];
    const int64_t number = rule.sum.number;
    const int64_t least = std::max(rule.least[level], number - (rule.most[0] - rule.most[level]));
    const int64_t most = std::min(rule.most[level], number - (rule.least[0] - rule.least[level]));
    return {least, most - least < kMostSpan ? std::max<int64_t>(0, most - least + 1) : 0};
  }

  // What is left of a single sum is a whole number between bounds: its arcs are no more than those of all such numbers.
  double most_arcs() const {
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

  void add(int check) {
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

  // The levels between which each node of a rule is kept.
  void chain(FunctionRule& rule) {
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

  // Gathers what the condition is about; its nodes above are computed from that.
  void collect(int node, FunctionRule& rule) {
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

  // The number of a node's gathered form, -1 where it has none.
  int gather(int node, const Set& open) {
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

  // Whether no order of its parts leaves the range of numbers.
  static bool fits(const Gathered& of) {
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

  // The values of a number that depends on one variable, which has a value everywhere.
  std::vector<int64_t> values_of(int node, int variable) {
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

  // Of a sum or product that is only divided by numbers, and looked at for what is left, only that is kept.
  void take_remainders() {
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

  // Which rules and numbers a level changes, and which numbers have to be known before it.
  void plan() {
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

  static bool is_kept(const FunctionRule::Known& here, size_t level) {
    return here.first_level >= 0 && here.first_level < static_cast<int>(level) && here.used_until >= static_cast<int>(level);
  }

  // Follows a chained rule one value further: 0 where it fails, 1 where it may hold. Sets its words.
  bool follow_chain(const FunctionRule& rule, size_t level) {
    int64_t* words = after_.data() + rule.first_word;
    const size_t last = rule.known.size() - 1;
    if (words[last] == 1) return true;
    kept_.clear();
    for (size_t i = 0; i <= last; ++i) {
      const FunctionRule::Known& here = rule.known[i];
      Interval found;
      if (words[i] == kNever) {
        found.undefined = found.never = true;
      } else if (words[i] != kOpen) {
        found = {words[i], words[i], false};
      } else if (here.gathered < 0) {
        found = model_.bounds_of(model_.nodes[here.node], known_, known_);
      } else {
        const Gathered& of = gathered_[static_cast<size_t>(here.gathered)];
        const int64_t word = after_[sums_.size() + static_cast<size_t>(here.gathered)];
        if (here.first_level == static_cast<int>(level)) found = {word, word, false};
        else if (of.modulus) found = {0, of.modulus - 1, false};
        else found = joined(of.op, Interval{of.start, of.start, false}, of.later[0]);
      }
      kept_.push_back(known_[here.node]);
      known_[here.node] = found;
    }
    const Interval truth = known_[rule.known[last].node];
    const bool over = rule.last_level == static_cast<int>(level);
    const bool holds = truth.upper != 0 && (!over || truth.lower == 1);
    if (holds) keep_chain(rule, level, truth.lower == 1, words);
    for (size_t i = 0; i <= last; ++i) known_[rule.known[i].node] = kept_[i];
    return holds;
  }

  // Keeps the nodes that are known and that others which are not known look at.
  void keep_chain(const FunctionRule& rule, size_t level, bool settled, int64_t* words) {
    const size_t last = rule.known.size() - 1;
    auto is_known = [&](int node) { return known_[node].point() || known_[node].never; };
    wanted_.assign(rule.known.size(), 0);
    wanted_[last] = 1;
    for (size_t i = last + 1; i-- > 0 && !settled;) {
      const FunctionRule::Known& here = rule.known[i];
      if (!wanted_[i] || here.gathered >= 0 || is_known(here.node)) continue;
      for (int a : model_.nodes[here.node].args) {
        for (size_t j = 0; j < i; ++j) {
          if (rule.known[j].node == a) wanted_[j] = 1;
        }
      }
    }
    for (size_t i = 0; i <= last; ++i) {
      const FunctionRule::Known& here = rule.known[i];
      words[i] = kOpen;
      if (!wanted_[i] || !is_kept(here, level + 1)) continue;
      if (known_[here.node].never) words[i] = kNever;
      else if (known_[here.node].point()) words[i] = known_[here.node].lower;
      else if (here.last_level <= static_cast<int>(level)) vague_ = true;
    }
  }

  // Where an equality leaves one place for the level's variable at most, the range of places becomes that one or none.
  void forced(size_t level, int* first, int* end) {
    auto only = [&](const std::vector<std::pair<int64_t, int>>& places, int64_t value) {
      const auto at = std::lower_bound(places.begin(), places.end(), std::pair<int64_t, int>{value, -1});
      if (at == places.end() || at->first != value) *first = *end = 0;
      else if (at + 1 == places.end() || (at + 1)->first != value) *first = at->second, *end = at->second + 1;
    };
    for (size_t r : sums_at_[level]) {
      const SumRule& rule = sums_[r];
      if (rule.op != Op::kEq || rule.last_level != static_cast<int>(level) || before_[r] == kSettled) continue;
      const int64_t c = rule.coefficient[level];
      if (before_[r] % c != 0) *first = *end = 0;
      else only(value_places_[level], before_[r] / c);
      return;
    }
    for (size_t f : functions_at_[level]) {
      const FunctionRule& rule = functions_[f];
      const Node& check = model_.nodes[rule.nodes.back()];
      if (rule.chained || check.op != Op::kEq || rule.last_level != static_cast<int>(level)) continue;
      for (int side = 0; side < 2; ++side) {
        const int g = gathered_of_[check.args[side]], other = check.args[1 - side];
        if (g < 0 || gathered_[g].modulus || gathered_[g].parts[level].empty()) continue;
        if (model_.nodes[other].variables[variables_[level]] || before_[sums_.size() + g] == kSettled) continue;
        const int64_t part = before_[sums_.size() + g];
        if (!evaluate(rule, before_, level) || !bounds_of(other).point()) continue;
        const int64_t whole = bounds_of(other).lower;
        if (gathered_[g].op == Op::kAdd) return only(places_of_[g], whole - part);
        if (gathered_[g].op != Op::kMul || part == 0) continue;
        if (whole % part != 0) *first = *end = 0;
        else only(places_of_[g], whole / part);
        return;
      }
    }
  }

  // The places of the level's variable that an equality leaves, and their range in the list; nullptr where all may do.
  const uint16_t* listed(size_t level, int* first, int* end) {
    int64_t key = 0;
    if (!choices_.rule || !evaluate(*choices_.rule, before_, level) || !asked(&key)) return nullptr;
    const bool none = key < choices_.least || key - choices_.least + 1 >= static_cast<int64_t>(choices_.starts.size());
    *first = none ? 0 : static_cast<int>(choices_.starts[static_cast<size_t>(key - choices_.least)]);
    *end = none ? 0 : static_cast<int>(choices_.starts[static_cast<size_t>(key - choices_.least) + 1]);
    return choices_.places.data();
  }

  // The number by which places are listed; false where it is not known or every place has it.
  bool asked(int64_t* key) const {
    const Interval& whole = bounds_of(choices_.whole);
    if (!whole.point()) return false;
    *key = whole.lower;
    if (choices_.rest >= 0) {
      const Interval& rest = bounds_of(choices_.rest);
      if (!rest.point()) return false;
      *key -= rest.lower;
    }
    if (choices_.gathered < 0) {
      *key = std::abs(*key);
      return *key != 0;
    }
    const int64_t part = before_[sums_.size() + static_cast<size_t>(choices_.gathered)];
    if (gathered_[static_cast<size_t>(choices_.gathered)].op == Op::kAdd) {
      *key -= part;
      return true;
    }
    if (part == 0) return false;
    // Out of the list's range where it is no whole number.
    *key = *key % part == 0 ? *key / part : choices_.least - 1;
    return true;
  }

  // Lists a level's places where that is less work than to try all of them for each of its states.
  void list_choices(size_t level, size_t num_states, Budget& budget, Held& held) {
    for (size_t f : functions_at_[level]) {
      const FunctionRule& rule = functions_[f];
      if (rule.chained || choices_.rule) continue;
      const Node& check = model_.nodes[rule.nodes.back()];
      const double most = static_cast<double>(num_states) * static_cast<double>(prepared_.axes[variables_[level]].values.size());
      if (check.op == Op::kDivides) list_divisors(rule, check.args[1], check.args[0], -1, level, most, budget, held);
      for (int side = 0; side < 2 && check.op == Op::kEq; ++side) {
        const Node& node = model_.nodes[check.args[side]];
        const int other = check.args[1 - side];
        if (!is_known_before(other, level)) continue;
        list_pairs(rule, gathered_of_[check.args[side]], other, level, most, budget, held);
        if (node.op == Op::kMod) list_divisors(rule, node.args[0], node.args[1], other, level, most, budget, held);
      }
    }
  }

  // Whether the variables of a node all stand before a level.
  bool is_known_before(int node, size_t level) const {
    const Set open = model_.nodes[node].variables & ~prepared_.fixed;
    for (size_t later = level; later < variables_.size(); ++later) {
      if (open[variables_[later]]) return false;
    }
    return true;
  }

  // Places by the sum or product of their part with any part of the last variable.
  void list_pairs(const FunctionRule& rule, int g, int whole, size_t level, double most, Budget& budget, Held& held) {
    if (choices_.rule || g < 0) return;
    const Gathered& of = gathered_[static_cast<size_t>(g)];
    if (of.modulus || (of.op != Op::kAdd && of.op != Op::kMul) || of.last_level <= static_cast<int>(level)) return;
    for (int later = static_cast<int>(level) + 1; later < of.last_level; ++later) {
      if (!of.parts[static_cast<size_t>(later)].empty()) return;
    }
    const std::vector<int64_t>& here = of.parts[level];
    std::vector<int64_t> last = of.parts[static_cast<size_t>(of.last_level)];
    std::sort(last.begin(), last.end());
    last.erase(std::unique(last.begin(), last.end()), last.end());
    const Interval range = joined(of.op, interval_of(here), interval_of(last));
    const double pairs = static_cast<double>(here.size()) * static_cast<double>(last.size());
    if (pairs + static_cast<double>(range.upper - range.lower) > std::min(most, kMostChoices)) return;
    list_by(range.lower, range.upper, pairs, budget, held, [&](auto add) {
      for (size_t place = 0; place < here.size(); ++place) {
        // Zero times anything is one number.
        const size_t number = of.op == Op::kMul && here[place] == 0 ? 1 : last.size();
        for (size_t i = 0; i < number; ++i) add(joined(of.op, here[place], last[i]), place);
      }
    });
    choices_.rule = &rule, choices_.gathered = g, choices_.whole = whole;
  }

  // Places whose value divides a number, by that number: `whole` less `rest`.
  void list_divisors(const FunctionRule& rule, int whole, int by, int rest, size_t level, double most, Budget& budget, Held& held) {
    const int g = gathered_of_[by];
    if (choices_.rule || g < 0 || !is_known_before(whole, level)) return;
    const Gathered& of = gathered_[static_cast<size_t>(g)];
    if (of.modulus || of.parts[level].empty() || of.first_level != of.last_level) return;
    const std::vector<int64_t>& here = of.parts[level];
    const Interval& range = prepared_.bounds[whole];
    const Interval less = rest < 0 ? Interval{0, 0, false} : prepared_.bounds[rest];
    if (range.undefined || less.undefined || interval_of(here).lower < 1) return;
    const int64_t largest = std::max(std::abs(range.upper - less.lower), std::abs(range.lower - less.upper));
    double multiples = 0;
    for (int64_t value : here) multiples += static_cast<double>(largest / value);
    if (multiples + static_cast<double>(largest) > std::min(most, kMostChoices)) return;
    list_by(0, largest, multiples, budget, held, [&](auto add) {
      for (size_t place = 0; place < here.size(); ++place) {
        for (int64_t key = here[place]; key <= largest; key += here[place]) add(key, place);
      }
    });
    choices_.rule = &rule, choices_.gathered = -1, choices_.whole = whole, choices_.rest = rest;
  }

  // Sorts places by keys; `each` calls what it is given with every key and place, twice.
  template <typename F>
  void list_by(int64_t least, int64_t most, double number, Budget& budget, Held& held, F each) {
    budget.spend(static_cast<int64_t>(number));
    const size_t keys = static_cast<size_t>(most - least) + 1;
    choices_.bytes = static_cast<int64_t>((keys + 2) * sizeof(uint32_t)) + static_cast<int64_t>(number) * static_cast<int64_t>(sizeof(uint16_t));
    held.take(choices_.bytes);
    choices_.least = least;
    // Counts stand two further on, so that after the second walk every key's places begin at its start.
    choices_.starts.assign(keys + 2, 0);
    each([&](int64_t key, size_t) { ++choices_.starts[static_cast<size_t>(key - least) + 2]; });
    for (size_t at = 2; at < keys + 2; ++at) choices_.starts[at] += choices_.starts[at - 1];
    choices_.places.resize(choices_.starts.back());
    each([&](int64_t key, size_t place) {
      choices_.places[choices_.starts[static_cast<size_t>(key - least) + 1]++] = static_cast<uint16_t>(place);
    });
    choices_.starts.pop_back();
  }

  void forget_choices(Held& held) {
    held.give(choices_.bytes);
    choices_ = Choices();
  }

  // The bounds of a rule's nodes where the numbers are gathered up to a level; false where the rule is settled.
  bool evaluate(const FunctionRule& rule, const std::vector<int64_t>& words, size_t level) {
    for (int g : rule.gathered) {
      const Gathered& of = gathered_[g];
      const int64_t word = words[sums_.size() + static_cast<size_t>(g)];
      if (word == kSettled) return false;
      Interval& range = ranges_[static_cast<size_t>(g)];
      if (of.last_level < static_cast<int>(level)) range = {word, word, false};
      else if (of.modulus) range = {0, of.modulus - 1, false};
      else range = joined(of.op, Interval{word, word, false}, of.later[level]);
    }
    // What stands below a gathered number is not looked at as long as that has its bounds here, and none afterwards.
    for (int g : rule.gathered) std::swap(known_[gathered_[g].node], ranges_[static_cast<size_t>(g)]);
    for (int node : rule.nodes) known_[node] = model_.bounds_of(model_.nodes[node], known_, known_);
    for (int g : rule.gathered) std::swap(known_[gathered_[g].node], ranges_[static_cast<size_t>(g)]);
    return true;
  }

  const Interval& bounds_of(int node) const {
    return gathered_of_[node] < 0 ? known_[node] : ranges_[static_cast<size_t>(gathered_of_[node])];
  }

  // Whether a product of which a part is known can still be the number on the other side.
  bool may_divide(const FunctionRule& rule, size_t level) const {
    const Node& check = model_.nodes[rule.nodes.back()];
    if (check.op != Op::kEq) return true;
    for (int side = 0; side < 2; ++side) {
      const int g = gathered_of_[check.args[side]];
      const Interval& whole = bounds_of(check.args[1 - side]);
      if (g < 0 || gathered_[g].op != Op::kMul || gathered_[g].modulus || !whole.point() || whole.lower == 0) continue;
      if (gathered_[g].last_level < static_cast<int>(level)) continue;
      const int64_t part = after_[sums_.size() + static_cast<size_t>(g)];
      if (part == 0 || whole.lower % part != 0) return false;
    }
    return true;
  }

  // Whether rules without a variable, after all that cancels out, hold.
  bool constants_hold() {
    for (const SumRule& rule : sums_) {
      const int64_t number = rule.sum.number;
      if (rule.last_level < 0 && (rule.op == Op::kLe ? number < 0 : (rule.op == Op::kEq) == (number != 0))) return false;
    }
    for (const FunctionRule& rule : functions_) {
      if (rule.last_level >= 0 || !evaluate(rule, before_, 0)) continue;
      if (known_[rule.nodes.back()].lower != 1) return false;
    }
    return true;
  }

  // The numbers after one more value; false where a rule fails.
  bool follow(size_t level, int place) {
    const int64_t value = prepared_.axes[variables_[level]].values[static_cast<size_t>(place)];
    after_ = before_;
    for (size_t r : sums_at_[level]) {
      const SumRule& rule = sums_[r];
      int64_t& rest = after_[r];
      if (rest == kSettled) continue;
      rest -= rule.coefficient[level] * value;
      const int64_t least = rule.least[level + 1], most = rule.most[level + 1];
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
    for (size_t g : gathered_at_[level]) {
      int64_t& word = after_[sums_.size() + g];
      const Gathered& of = gathered_[g];
      if (word == kSettled) continue;
      word = joined(of.op, word, of.parts[level][static_cast<size_t>(place)]);
      if (of.modulus) word = remainder_of(word, of.modulus);
    }
    holding_.clear();
    for (size_t f : functions_at_[level]) {
      const FunctionRule& rule = functions_[f];
      if (rule.chained) {
        if (!follow_chain(rule, level)) return false;
        continue;
      }
      if (!evaluate(rule, after_, level + 1)) continue;
      const Interval& truth = known_[rule.nodes.back()];
      if (truth.upper == 0 || !may_divide(rule, level + 1)) return false;
      if (rule.last_level == static_cast<int>(level) && truth.lower != 1) return false;
      if (truth.lower == 1) holding_.push_back(f);
    }
    settle(level);
    return true;
  }

  // Forgets numbers whose rules all hold whatever comes.
  void settle(size_t level) {
    for (size_t f : holding_) {
      for (int g : functions_[f].gathered) {
        int64_t& word = after_[sums_.size() + static_cast<size_t>(g)];
        if (word == kSettled || gathered_[static_cast<size_t>(g)].used_until <= static_cast<int>(level)) continue;
        bool all = true;
        for (size_t other : users(g)) all &= std::find(holding_.begin(), holding_.end(), other) != holding_.end();
        if (all) word = kSettled;
      }
    }
  }

  const std::vector<size_t>& users(int g) {
    if (users_.empty()) {
      users_.resize(gathered_.size());
      for (size_t f = 0; f < functions_.size(); ++f) {
        for (int of : functions_[f].gathered) users_[static_cast<size_t>(of)].push_back(f);
      }
    }
    return users_[static_cast<size_t>(g)];
  }

  // Drops states from which no solution is reachable.
  static void prune(Diagram* diagram, Held& held) {
    std::vector<uint32_t> renumbered = {0};
    for (size_t level = diagram->layers.size(); level-- > 0;) {
      Layer& layer = diagram->layers[level];
      const int64_t numbers = static_cast<int64_t>((layer.num_states + renumbered.size()) * sizeof(uint32_t));
      held.take(numbers);
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
      fit(layer, held);
      layer.num_states = num_states;
      diagram->num_arcs += kept;
      renumbered = std::move(above);
      held.give(numbers);
    }
  }

  const Model& model_;
  const Prepared& prepared_;
  const std::vector<int>& variables_;
  // Bounds of nodes: of those over fixed variables once, of those above gathered numbers anew with every value.
  std::vector<Interval> known_, ranges_;
  std::vector<int> level_of_, gathered_of_;
  std::vector<SumRule> sums_;
  std::vector<Gathered> gathered_;
  std::vector<FunctionRule> functions_;
  // Per level; a number is what is left of a sum, or what is gathered, numbered in this order.
  std::vector<std::vector<size_t>> sums_at_, gathered_at_, functions_at_, active_;
  std::vector<int64_t> before_, after_;
  Choices choices_;
  // False where some variable's values are too large to be gathered.
  bool whole_ = true;
  // True where a number was not known after all of its variables.
  bool vague_ = false;
  std::vector<Interval> kept_;
  std::vector<uint8_t> wanted_;
  std::vector<size_t> holding_;
  std::vector<std::vector<size_t>> users_;
  // Parts of the last level of a gathered number, and values of the last level of an equality, with their places.
  std::vector<std::vector<std::pair<int64_t, int>>> places_of_, value_places_;
};

}  // namespace

namespace {

// What the values of a layer add to the length of a number of paths.
double bits_of(const Layer& layer) {
  const auto most = std::max_element(layer.places.begin(), layer.places.end());
  return std::log2(most == layer.places.end() ? 1.0 : static_cast<double>(*most) + 1.0) + 1e-9;
}

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

size_t Diagram::num_words() const {
  double bits = 1;
  for (const Layer& layer : layers) bits += bits_of(layer);
  return static_cast<size_t>(bits / 32) + 1;
}

int64_t Diagram::bytes_to_count() const {
  const size_t width = num_words();
  size_t all = 1, most = 0, below = 1;
  for (size_t level = layers.size(); level-- > 0; below = layers[level].num_states) {
    all += layers[level].num_states;
    most = std::max(most, (layers[level].num_states + below) * width);
  }
  return static_cast<int64_t>(num_arcs) * kArcBytes + static_cast<int64_t>(std::max(all * sizeof(int64_t), most * sizeof(uint32_t)));
}

std::vector<uint32_t> Diagram::num_paths() const {
  // The words that are enough from a layer on: few near the end.
  double bits = 1;
  size_t width = 1;
  std::vector<uint32_t> below = {1}, here;
  for (size_t level = layers.size(); level-- > 0;) {
    const Layer& layer = layers[level];
    const size_t before = width;
    bits += bits_of(layer);
    width = static_cast<size_t>(bits / 32) + 1;
    here.assign(layer.num_states * width, 0);
    for (size_t arc = 0; arc < layer.from.size(); ++arc) {
      uint32_t* to = here.data() + layer.from[arc] * width;
      const uint32_t* from = below.data() + layer.to[arc] * before;
      uint64_t carried = 0;
      for (size_t i = 0; i < before || carried; ++i) {
        carried += uint64_t{to[i]} + (i < before ? from[i] : 0);
        to[i] = static_cast<uint32_t>(carried);
        carried >>= 32;
      }
    }
    below.swap(here);
  }
  below.resize(width);
  return below;
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

DiagramSize size_of_diagram(const Model& model, const Prepared& prepared, const std::vector<int>& variables) {
  return DiagramBuilder(model, prepared, variables).size();
}

bool build_diagram(const Model& model, const Prepared& prepared, const std::vector<int>& variables, size_t max_arcs,
                   int64_t tries, Budget& budget, Diagram* diagram) {
  return DiagramBuilder(model, prepared, variables).run(max_arcs, tries, budget, diagram);
}

}  // namespace constrint
