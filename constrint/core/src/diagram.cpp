#include "diagram.hpp"

#include <algorithm>
#include <cmath>

#include "runs.hpp"

namespace constrint {

namespace {

// What the values of a layer add to the length of a number of paths.
double bits_of(const Layer& layer) {
  const auto most = std::max_element(layer.places.begin(), layer.places.end());
  return std::log2(most == layer.places.end() ? 1.0 : static_cast<double>(*most) + 1.0) + 1e-9;
}

}  // namespace

std::vector<uint32_t> Layer::starts() const {
  std::vector<uint32_t> found(num_states + 1, 0);
  for (uint32_t state : from) ++found[state + 1];
  for (size_t state = 0; state < num_states; ++state) found[state + 1] += found[state];
  return found;
}

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
  const std::vector<uint32_t> starts = layer.starts();
  std::vector<uint32_t> after;
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
    with_type(value_bytes(axis), [&](auto type) {
      list_layer(layer, axis.values, ends, inner, states, reinterpret_cast<decltype(type)*>(out));
    });
  }
}

}  // namespace constrint
