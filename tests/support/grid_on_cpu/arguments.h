// Arguments of a launch, as numbers, one after the other.
#pragma once
#include "grid.h"

static const long long* next_argument;
template <typename T>
T taken() {
  T made;
  std::memcpy(&made, next_argument++, sizeof made);
  return made;
}
template <typename T, int kNumber>
void take(T (&made)[kNumber]) {
  for (T& each : made) each = taken<T>();
}
// Before a run: the mistake that it makes, its arguments, and the blocks of its grid.
inline void begin(int mistake, const long long* arguments, int blocks) {
  fibers::mistake = mistake;
  next_argument = arguments;
  gridDim = {blocks, 1, 1};
}
