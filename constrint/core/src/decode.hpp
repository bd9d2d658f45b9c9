// Decodes conditions and expressions from numbers in postfix order, as constrint/model/encode.py writes them. Any input
// gives a well-formed node or Unsupported.
#pragma once

#include <algorithm>
#include <vector>

#include "model.hpp"

namespace constrint {
namespace {

// How many operands an operation takes, and whether these are conditions.
struct Shape {
  size_t least, most;
  bool conditions;
};

Shape shape_of(Op op) {
  switch (op) {
    case Op::kVar:
    case Op::kConst:
    case Op::kAgain: return {0, 0, false};
    case Op::kNeg:
    case Op::kAbs:
    case Op::kInList:
    case Op::kInRange: return {1, 1, false};
    case Op::kAdd:
    case Op::kMul:
    case Op::kMin:
    case Op::kMax:
    case Op::kGcd:
    case Op::kLcm:
    case Op::kBitAnd:
    case Op::kBitOr:
    case Op::kBitXor:
    case Op::kTable: return {1, SIZE_MAX, false};
    // The index and the items.
    case Op::kElement: return {2, SIZE_MAX, false};
    case Op::kTruth:
    case Op::kNot: return {1, 1, true};
    case Op::kAnd:
    case Op::kOr: return {0, SIZE_MAX, true};
    default: return {2, 2, false};
  }
}

// A condition or an expression in postfix order, each operation as its number, its operand count and a value or list.
class Decoder {
 public:
  Decoder(Model& model, const std::vector<int64_t>& words) : model_(model), words_(words) {}

  int whole() {
    while (at_ < words_.size()) step();
    if (stack_.size() != 1) throw Unsupported{};
    return stack_[0];
  }

 private:
  void step() {
    if (words_.size() - at_ < 3) throw Unsupported{};
    const int64_t number = words_[at_], wanted = words_[at_ + 1];
    int64_t value = words_[at_ + 2];
    at_ += 3;
    if (number < 0 || number > static_cast<int64_t>(Op::kAgain)) throw Unsupported{};
    const Op op = static_cast<Op>(number);
    const Shape shape = shape_of(op);
    const size_t count = static_cast<size_t>(wanted);
    if (wanted < 0 || count > stack_.size() || count < shape.least || count > shape.most) throw Unsupported{};
    if (op == Op::kAgain) {
      if (value < 0 || value >= static_cast<int64_t>(written_.size())) throw Unsupported{};
      push(written_[static_cast<size_t>(value)]);
      return;
    }
    if (op == Op::kVar && (value < 0 || value >= static_cast<int64_t>(model_.domains.size()))) throw Unsupported{};
    if (op == Op::kInList || op == Op::kInRange) value = list(op, value);
    if (op == Op::kTable) value = model_.table(numbers(value), count);
    std::vector<int> args(stack_.end() - static_cast<long>(count), stack_.end());
    for (int a : args) {
      if (is_condition(model_.nodes[a].op) != shape.conditions) throw Unsupported{};
    }
    stack_.resize(stack_.size() - count);
    push(model_.node(op, std::move(args), value));
  }

  // A count of numbers, and these numbers.
  std::vector<int64_t> numbers(int64_t size) {
    if (size < 1 || size > static_cast<int64_t>(words_.size() - at_)) throw Unsupported{};
    auto first = words_.begin() + static_cast<long>(at_);
    at_ += static_cast<size_t>(size);
    return {first, first + static_cast<long>(size)};
  }

  // Sorted members, or the lower bound, the upper bound and the step of a range.
  int64_t list(Op op, int64_t size) {
    std::vector<int64_t> values = numbers(size);
    if (op == Op::kInRange) {
      if (size != 3 || values[0] > values[1] || values[2] < 1) throw Unsupported{};
    } else {
      std::sort(values.begin(), values.end());
      values.erase(std::unique(values.begin(), values.end()), values.end());
    }
    return model_.list(std::move(values));
  }

  void push(int node) {
    written_.push_back(node);
    stack_.push_back(node);
  }

  Model& model_;
  const std::vector<int64_t>& words_;
  size_t at_ = 0;
  std::vector<int> stack_, written_;
};

}  // namespace
}  // namespace constrint
