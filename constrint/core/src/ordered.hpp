// The solutions of one component in declared order: by a plain walk where that is quick, else by depth-first search with
// propagation, which is slower per step and takes far fewer of them.
#pragma once

#include <memory>
#include <vector>

#include "search.hpp"
#include "walk.hpp"

namespace constrint {

class OrderedWalk {
 public:
  // `prepared` and `model` must outlive it.
  OrderedWalk(const Model& model, const Prepared& prepared, std::vector<int> variables)
      : model_(model), prepared_(prepared), variables_(variables), plain_(model, prepared, std::move(variables)) {}

  // Moves on to the next solution; false when there is none.
  bool next(Budget& budget) {
    if (!search_) {
      int64_t all = budget.max_cells;
      budget.max_cells = std::min(all, budget.cells + kPlainCells);
      try {
        bool found = plain_.next(budget);
        budget.max_cells = all;
        num_found_ += found;
        return found;
      } catch (const LimitReached& limit) {
        bool is_final = limit.what != Limit::kCells || budget.cells > all;
        budget.max_cells = all;
        if (is_final) throw;
      }
      auto search = std::make_unique<DepthFirst>(model_, prepared_, variables_, DepthFirst::Order::kDeclared);
      for (int64_t i = 0; i < num_found_; ++i) search->next(budget);
      search_ = std::move(search);
    }
    bool found = search_->next(budget) == DepthFirst::Outcome::kSolution;
    num_found_ += found;
    return found;
  }
  // Number of solutions so far, and the finished share of the search from 0 to 1; also after a limit.
  int64_t num_found() const { return num_found_; }
  double progress() const { return search_ ? search_->progress() : plain_.progress(); }
  // Positions on the prepared axes.
  const std::vector<int>& positions() const { return search_ ? search_->positions() : plain_.positions(); }

 private:
  // A solution that takes a plain walk more steps than this is searched for.
  static constexpr int64_t kPlainCells = 1 << 14;

  const Model& model_;
  const Prepared& prepared_;
  std::vector<int> variables_;
  Walker plain_;
  std::unique_ptr<DepthFirst> search_;
  int64_t num_found_ = 0;
};

}  // namespace constrint
