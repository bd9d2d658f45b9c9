// The rules of one component during a depth-first search: sums, differences and whatever else there is, each woken by
// changes of its variables, until nothing more follows.
#pragma once

#include <vector>

#include "narrow.hpp"

namespace constrint {

// The sum of coefficients times variables, compared with a number.
struct LinearSum {
  std::vector<int> variables;
  std::vector<int64_t> coefficients;
  int64_t number = 0;
};

// The difference of two sides as a sum of variables that are not fixed, where it is one: `sides` are two expressions, or
// an expression and -1. The number is the remaining right-hand side.
bool linear_sum(const Model& model, const Prepared& prepared, int left, int right, LinearSum* sum);

class Propagation {
 public:
  Propagation(const Model& model, const Prepared& prepared, const std::vector<int>& variables);

  Store store;
  Narrowing narrowing;

  // Narrows until nothing more follows; false where a rule can no longer hold. Work is spent from the budget.
  bool run(Budget& budget);
  // Wakes every rule.
  void wake_all();
  // How often the rules of a variable failed, a measure of how hard it is.
  double weight(int v) const { return weights_[v]; }
  // Upper bounds of sums: coefficients times variables <= number.
  const std::vector<LinearSum>& at_most() const { return at_most_; }

 private:
  enum class Kind : uint8_t { kAtMost, kEqual, kDifferent, kAllDifferent, kGeneral };
  struct Rule {
    Kind kind;
    bool queued = false;
    LinearSum sum;
    // General: the nodes below the condition, operands first.
    std::vector<int> nodes;
    std::vector<int> variables;
  };
  void add(int check, const Prepared& prepared);
  void add_cliques();
  void watch();
  void wake(int rule) {
    if (rules_[rule].queued) return;
    rules_[rule].queued = true;
    queue_.push_back(rule);
  }
  bool apply(const Rule& rule, Budget& budget);
  bool at_most(const LinearSum& sum, bool upwards);
  bool different(const LinearSum& sum);
  bool all_different(const Rule& rule);
  bool general(const Rule& rule, Budget& budget);

  const Model& model_;
  std::vector<Rule> rules_;
  std::vector<LinearSum> at_most_;
  // Per variable the rules that wake when it is fixed, when its bounds change and when any value goes.
  std::vector<std::vector<int>> on_fixed_, on_bounds_, on_holes_;
  std::vector<int> queue_;
  std::vector<double> weights_;
  std::vector<uint64_t> once_, twice_;
  std::vector<Interval> trial_;
  std::vector<int> failing_;
  bool feasible_ = true;
};

}  // namespace constrint
