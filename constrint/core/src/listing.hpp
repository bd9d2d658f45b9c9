// How the solutions of one component are found where its tables might be long: as tables of a tree, by depth-first search,
// or as a decision diagram, whichever the work so far says is least.
#pragma once

#include <memory>
#include <vector>

#include "diagram.hpp"
#include "space.hpp"

namespace constrint {

// The tables of a tree of groups, or one table of all variables, or a diagram.
struct Listed {
  bool feasible = true;
  std::vector<Bag> bags;
  std::vector<Table> tables;
  std::unique_ptr<Diagram> diagram;
};

Listed list_component(const Model& model, const Prepared& prepared, const std::vector<int>& variables,
                      const std::vector<int>& checks, const std::vector<Set>& scopes, std::vector<Bag> bags, Way way,
                      Budget& budget);

// Memory that linking and counting the tables of a tree takes at most.
int64_t bytes_to_count(const std::vector<Bag>& bags, const std::vector<Table>& tables, const std::vector<Axis>& axes);

}  // namespace constrint
