// Depth-first search over some variables: narrows, decides, and turns each decision round when nothing is left behind it.
// It lists solutions, or looks for the best ones by objectives in order of importance (branch and bound).
#pragma once

#include <cstddef>
#include <vector>

#include "propagate.hpp"

namespace constrint {

struct Goal {
  int expression;
  bool maximise;
};

// The least cost that a sum over some bounded sum can have, where the variables may be fractions (Dantzig's bound).
class Relaxation {
 public:
  // Cost: coefficients times variables; limit: a sum that is at most its number.
  Relaxation(const LinearSum& cost, const LinearSum& limit);
  // False where the limit cannot hold; else raises `bound` to the least cost, rounded up.
  bool least(const Store& store, int64_t* bound) const;
  // The variables by the cost of saving room, the cheapest first.
  const std::vector<int>& order() const { return order_; }

 private:
  struct Term {
    int variable;
    int64_t cost, room;
  };
  std::vector<Term> terms_;
  std::vector<int> order_;
  int64_t constant_, number_;
};

class DepthFirst {
 public:
  enum class Outcome { kSolution, kDone, kPaused };
  enum class Order { kSmallest, kDeclared };

  // Goals that are not empty make every next solution better than the `num_best`-th best one so far. `hints` has a value
  // for some variables that is tried first.
  DepthFirst(const Model& model, const Prepared& prepared, std::vector<int> variables, Order order, std::vector<Goal> goals = {},
         size_t num_best = 1, std::vector<Choice> hints = {});

  // Continues to the next solution, within at most `decisions` decisions.
  Outcome next(Budget& budget, int64_t max_decisions = INT64_MAX);
  // Positions on the prepared axes, in the order of the variables.
  const std::vector<int>& positions() const { return positions_; }
  const std::vector<int>& variables() const { return variables_; }
  // Finished share of the tree, from 0 to 1.
  double progress() const { return progress_; }
  int64_t decisions() const { return decisions_; }
  int64_t num_found() const { return num_found_; }
  // The best solutions so far, best first: their costs and positions. Without goals, the first one found.
  struct Found {
    std::vector<int64_t> costs;
    std::vector<int> positions;
  };
  const std::vector<Found>& best() const { return best_; }
  // Makes every next solution better than one with these costs, which was found elsewhere.
  void below(std::vector<int64_t> costs) { elsewhere_ = std::move(costs); }
  // No solution has a smaller first cost (the value, or its negative where it is maximised).
  int64_t bound() const;
  // Whether a solution was left out because an objective had no value.
  bool saw_undefined() const { return saw_undefined_; }

 private:
  struct Frame {
    size_t mark;
    int v, place;
    // Whether the decision was "at most" or "more than" the place instead of equality.
    enum : uint8_t { kEqual, kLow, kHigh } kind;
    int64_t bound;
    double share, left_share;
  };
  bool settle(Budget& budget);
  bool improve();
  int64_t least_cost(size_t goal);
  int chosen_variable();
  Frame decision(int v);
  int preferred(int v) const;
  int direction(int v);
  bool decide(const Frame& frame);
  bool refute(const Frame& frame);
  bool record();

  const Model& model_;
  const Prepared& prepared_;
  std::vector<int> variables_;
  Order order_;
  std::vector<Goal> goals_;
  std::vector<std::vector<int>> goal_nodes_;
  std::vector<Relaxation> relaxations_;
  std::vector<double> rank_;
  size_t num_best_;
  std::vector<int64_t> hints_;
  std::vector<uint8_t> has_hint_;
  Propagation rules_;
  std::vector<Frame> stack_;
  std::vector<int> positions_;
  std::vector<Found> best_;
  std::vector<int64_t> elsewhere_;
  std::vector<Interval> trial_;
  int64_t bound_, root_bound_;
  double progress_ = 0, share_ = 1;
  int64_t decisions_ = 0, num_found_ = 0;
  bool started_ = false, paused_ = false, done_ = false, saw_undefined_ = false;
};

}  // namespace constrint
