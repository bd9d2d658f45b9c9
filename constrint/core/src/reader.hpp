// Reads restrictions written as Python expressions into conditions: integers, names, + - * // % **, comparisons, `in`
// lists, and/or/not, min/max/abs. Everything else (a true quotient, an error) is left to the Python reader.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "model.hpp"

namespace constrint {

// The condition that `text` states; throws Unsupported where the Python reader has to decide.
int read_restriction(Model& model, const std::unordered_map<std::string, int>& names, std::string_view text);

}  // namespace constrint
