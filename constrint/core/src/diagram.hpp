// A decision diagram: the solutions of some variables as paths through layers of states. Partial assignments that leave
// the same to be decided (equal partial sums, equal values where they still matter) are one state.
#pragma once

#include <vector>

#include "propagate.hpp"
#include "slab.hpp"

namespace constrint {

// Memory of an arc.
constexpr int64_t kArcBytes = 10;

struct Layer {
  int variable = 0;
  // How many states the layer starts from, and the arcs from them, in order of their source and of the declared values:
  // from a state, with a place on the variable's axis, to a state of the next layer.
  uint32_t num_states = 0;
  SlabVector<uint32_t> from, to;
  SlabVector<uint16_t> places;
  // Where the arcs from every state begin, and the end of the last ones.
  std::vector<uint32_t> starts() const;
};

struct Diagram {
  std::vector<Layer> layers;
  // 0 where no path is left.
  size_t num_arcs = 0;
  // Paths from every state, layer by layer and after the last; Unsupported where there are more than 2^62.
  std::vector<std::vector<int64_t>> paths() const;
  // The number of paths, in words of 32 bits, the lowest first; and how many such words are enough.
  std::vector<uint32_t> num_paths() const;
  size_t num_words() const;
  // Memory of the arcs, and of counting the paths in either way.
  int64_t bytes_to_count() const;
};

// Writes the values of all paths, each `inner` times in a row, as `list_columns` does.
void list_paths(const Diagram& diagram, const std::vector<Axis>& axes, int64_t inner, const std::vector<char*>& columns);

// What is known of a diagram before it is built: the most variables in one sum, product or extreme, 0 where it cannot be
// built; and how many arcs it has at most.
constexpr double kUnknown = 1e300;
struct DiagramSize {
  size_t most_terms = 0;
  double most_arcs = kUnknown;
};
DiagramSize size_of_diagram(const Model& model, const Prepared& prepared, const std::vector<int>& variables);

// Builds the diagram of one component; false where it would have more arcs, or more arcs would have to be tried.
bool build_diagram(const Model& model, const Prepared& prepared, const std::vector<int>& variables, size_t max_arcs,
                   int64_t tries, Budget& budget, Diagram* diagram);

}  // namespace constrint
