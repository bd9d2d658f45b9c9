// A factored space: independent parts, each one free variable or a tree of tables whose rows all extend to solutions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "table.hpp"

namespace constrint {

// The problem after all conditions on single variables were applied.
struct Prepared {
  bool feasible = true;
  std::vector<Axis> axes;
  std::vector<Interval> bounds;
  // Conditions over at least two open variables that some combination may violate.
  std::vector<int> checks;
  // The open variables of each check.
  std::vector<Set> scopes;
  Set fixed;
};

// One variable with the only value that it may take.
struct Choice {
  int variable;
  int64_t value;
};

Prepared prepare(const Model& model, Budget& budget);

// Open variables that conditions link, directly or not; groups and members in declared order.
std::vector<std::vector<int>> components(const Model& model, const Prepared& prepared);

struct Bag {
  Set variables;
  int parent = -1;
  std::vector<int> children;
};

// Small overlapping groups of variables in a tree such that every scope lies inside one (variable elimination).
std::vector<Bag> tree(const std::vector<int>& variables, const std::vector<Set>& scopes,
                      const std::vector<double>& sizes);

// One table of a tree: rows sorted into groups that agree on the columns shared with the parent.
struct TreeNode {
  Table table;
  int parent = -1;
  std::vector<int> children;
  std::vector<int> shared;
  // Per child: the group of every row there.
  std::vector<std::vector<uint32_t>> links;
  // Where the rows of each group start, with the end of the last; solutions below each group.
  std::vector<uint32_t> starts;
  std::vector<int64_t> totals;
};

struct Diagram;

struct Part {
  // A free variable, or -1 for a tree (node 0 is the root and parents precede children) or a diagram.
  int free = -1;
  std::vector<TreeNode> nodes;
  std::shared_ptr<const Diagram> diagram;
  // Solutions; -1 where a diagram has more than 2^62.
  int64_t count = 0;
};

struct Space {
  bool feasible = true;
  std::vector<Axis> axes;
  Set fixed;
  // Smallest first, so that listing repeats the others in long runs.
  std::vector<Part> parts;
};

// How components are listed: as the work so far says, or in one way wherever there is more than one combination.
enum class Way { kChosen, kTables, kSearch, kDiagram };

Space enumerate(const Model& model, Budget& budget, Way way = Way::kChosen);

// Number of solutions; Unsupported where it is too large for a list.
int64_t total_of(const Space& space);

// Bytes that hold every value of an axis as a signed integer: 1, 2, 4 or 8.
int value_bytes(const Axis& axis);

// Writes the values of all solutions in index order, one column per variable; `columns[v]` has room for
// `rows * value_bytes(axes[v])` bytes.
void list_columns(const Space& space, int64_t rows, const std::vector<char*>& columns, Budget& budget);

}  // namespace constrint
