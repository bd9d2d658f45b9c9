// What a diagram is built by: the sums, products and extremes of a component's rules, and what of them has to be known
// at every level, which is one variable.
#pragma once

#include <utility>
#include <vector>

#include "diagram.hpp"

namespace constrint {

// Marks a number whose rules hold whatever comes.
constexpr int64_t kSettled = INT64_MAX;
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

inline int64_t joined(Op op, int64_t a, int64_t b) {
  switch (op) {
    case Op::kAdd: return a + b;
    case Op::kMul: return a * b;
    case Op::kMin: return std::min(a, b);
    default: return std::max(a, b);
  }
}

inline Interval joined(Op op, const Interval& a, const Interval& b) {
  if (op != Op::kMul) return {joined(op, a.lower, b.lower), joined(op, a.upper, b.upper), false};
  const int64_t corners[] = {a.lower * b.lower, a.lower * b.upper, a.upper * b.lower, a.upper * b.upper};
  const auto [low, high] = std::minmax_element(std::begin(corners), std::end(corners));
  return {*low, *high, false};
}

// What joins with any number without a change to it.
inline int64_t neutral(Op op) {
  return op == Op::kAdd ? 0 : op == Op::kMul ? 1 : op == Op::kMin ? kMaxMagnitude : -kMaxMagnitude;
}

inline int64_t remainder_of(int64_t a, int64_t modulus) {
  const int64_t rest = a % modulus;
  return rest < 0 ? rest + modulus : rest;
}

class DiagramRules {
 public:
  DiagramRules(const Model& model, const Prepared& prepared, const std::vector<int>& variables);
  DiagramSize size() const;

 protected:
  // Where what is left of a sum lies before a level, if that is all that has to be known there: the least number and how
  // many there are, 0 where these are too many.
  std::pair<int64_t, int64_t> window(size_t level) const;
  // What is left of a single sum is a whole number between bounds: its arcs are no more than those of all such numbers.
  double most_arcs() const;
  void add(int check);
  // The levels between which each node of a rule is kept.
  void chain(FunctionRule& rule);
  // Gathers what the condition is about; its nodes above are computed from that.
  void collect(int node, FunctionRule& rule);
  // The number of a node's gathered form, -1 where it has none.
  int gather(int node, const Set& open);
  // Whether no order of its parts leaves the range of numbers.
  static bool fits(const Gathered& of);
  // The values of a number that depends on one variable, which has a value everywhere.
  std::vector<int64_t> values_of(int node, int variable);
  // Of a sum or product that is only divided by numbers, and looked at for what is left, only that is kept.
  void take_remainders();
  // Which rules and numbers a level changes, and which numbers have to be known before it.
  void plan();
  static bool is_kept(const FunctionRule::Known& here, size_t level) {
    return here.first_level >= 0 && here.first_level < static_cast<int>(level) && here.used_until >= static_cast<int>(level);
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
  // False where some variable's values are too large to be gathered.
  bool whole_ = true;
  // Parts of the last level of a gathered number, and values of the last level of an equality, with their places.
  std::vector<std::vector<std::pair<int64_t, int>>> places_of_, value_places_;
};

}  // namespace constrint
