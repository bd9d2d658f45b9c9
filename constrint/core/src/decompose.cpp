#include <algorithm>
#include <cmath>

#include "space.hpp"

namespace constrint {

std::vector<std::vector<int>> components(const Model& model, const Prepared& prepared) {
  int n = static_cast<int>(model.domains.size());
  std::vector<int> leader(n);
  for (int i = 0; i < n; ++i) leader[i] = i;
  auto find = [&](int v) {
    while (leader[v] != v) v = leader[v] = leader[leader[v]];
    return v;
  };
  Set linked;
  for (const Set& scope : prepared.scopes) {
    linked |= scope;
    int first = find(first_of(scope));
    for (int v = 0; v < n; ++v) {
      if (scope[v]) leader[find(v)] = first;
    }
  }
  std::vector<std::vector<int>> groups;
  std::vector<int> group_of(n, -1);
  for (int v = 0; v < n; ++v) {
    if (!linked[v]) continue;
    int& group = group_of[find(v)];
    if (group < 0) group = static_cast<int>(groups.size()), groups.emplace_back();
    groups[group].push_back(v);
  }
  return groups;
}

namespace {

struct Elimination {
  std::vector<int> order;
  std::vector<Set> groups;
};

// Eliminates variables one by one, the one whose neighbourhood has the fewest combinations first.
Elimination eliminate(const std::vector<int>& variables, const std::vector<Set>& scopes,
                      const std::vector<double>& sizes) {
  std::vector<Set> linked(kMaxVariables);
  for (int v : variables) {
    for (const Set& scope : scopes) {
      if (scope[v]) linked[v] |= scope;
    }
    linked[v].reset(v);
  }
  Elimination found;
  found.groups.resize(kMaxVariables);
  std::vector<int> left = variables;
  while (!left.empty()) {
    size_t best = 0;
    double least = 0;
    size_t fewest = 0;
    for (size_t i = 0; i < left.size(); ++i) {
      double weight = sizes[left[i]];
      for (int v : left) {
        if (linked[left[i]][v]) weight += sizes[v];
      }
      size_t near = linked[left[i]].count();
      if (i == 0 || weight < least - 1e-9 || (weight < least + 1e-9 && near < fewest)) {
        best = i, least = weight, fewest = near;
      }
    }
    int v = left[best];
    left.erase(left.begin() + static_cast<long>(best));
    Set near = linked[v];
    found.order.push_back(v);
    found.groups[v] = near;
    found.groups[v].set(v);
    for (int other : left) {
      if (!near[other]) continue;
      linked[other] |= near;
      linked[other].reset(v);
      linked[other].reset(other);
    }
  }
  return found;
}

bool inside(const Set& a, const Set& b) { return (a & ~b).none(); }

}  // namespace

std::vector<Bag> tree(const std::vector<int>& variables, const std::vector<Set>& scopes,
                      const std::vector<double>& sizes) {
  Elimination found = eliminate(variables, scopes, sizes);
  std::vector<int> rank(kMaxVariables, -1), parent(kMaxVariables, -1), merged(kMaxVariables, -1);
  for (size_t i = 0; i < found.order.size(); ++i) rank[found.order[i]] = static_cast<int>(i);
  for (int v : found.order) {
    for (int other : variables) {
      if (!found.groups[v][other] || rank[other] <= rank[v]) continue;
      if (parent[v] < 0 || rank[other] < rank[parent[v]]) parent[v] = other;
    }
  }
  auto home = [&](int v) {
    while (merged[v] >= 0) v = merged[v];
    return v;
  };
  // A group inside its parent's group, or around it, becomes one with it.
  for (int v : found.order) {
    if (parent[v] < 0) continue;
    int above = home(parent[v]);
    if (inside(found.groups[v], found.groups[above])) {
      merged[v] = above;
    } else if (inside(found.groups[above], found.groups[v])) {
      found.groups[above] = found.groups[v];
      merged[v] = above;
    }
  }
  std::vector<Bag> bags;
  std::vector<int> position(kMaxVariables, -1);
  for (auto it = found.order.rbegin(); it != found.order.rend(); ++it) {
    int v = *it;
    if (merged[v] >= 0) continue;
    int up = parent[v] < 0 ? -1 : position[home(parent[v])];
    position[v] = static_cast<int>(bags.size());
    if (up >= 0) bags[up].children.push_back(position[v]);
    bags.push_back({found.groups[v], up, {}});
  }
  return bags;
}

}  // namespace constrint
