// Walks the solutions of one component in the declared order of variables and of their values, depth first; a value is
// dropped as soon as the bounds of some condition say that it can no longer hold.
#pragma once

#include <unordered_map>
#include <vector>

#include "space.hpp"

namespace constrint {

class Walker {
 public:
  // `variables` in the order in which they are assigned; `prepared` and `model` must outlive the walker.
  Walker(const Model& model, const Prepared& prepared, std::vector<int> variables);

  // Moves on to the next solution; false when there is none. Every value tried is spent as one cell. A walk that a
  // limit ended cannot go on.
  bool next(Budget& budget);
  // Positions on the prepared axes.
  const std::vector<int>& positions() const { return positions_; }
  // Finished share of all combinations, from 0 to 1.
  double progress() const;

 private:
  struct Step {
    // Nodes over the level's variable, operands first, and the conditions among them.
    std::vector<int> nodes, checks;
    // Equalities among them.
    std::vector<int> equalities;
    int only = 0;
    // Bounds of the nodes while the variable is open, given the values before it.
    std::vector<Interval> saved;
  };
  bool moved(Budget& budget);
  bool assign(size_t level, int position);
  void enter(size_t level);
  void release(size_t level);
  // The only position that some equality leaves the level's variable: kAny where none does, kNowhere where nothing fits.
  int forced(size_t level) const;
  bool solved(int equality, int variable, int64_t* value) const;

  const Model& model_;
  const Prepared& prepared_;
  std::vector<int> variables_;
  std::vector<Interval> initial_, open_, known_;
  std::vector<Step> steps_;
  // Where each value of a variable stands.
  std::vector<std::unordered_map<int64_t, int>> places_;
  std::vector<int> positions_;
  bool started_ = false, done_ = false, broken_ = false;
};

}  // namespace constrint
