#include "plan.hpp"

#include <algorithm>
#include <cstring>

namespace constrint {
namespace {

constexpr size_t kOnStack = 4096;

void fill(const Driver& driver, const Patch& patch, uint8_t* arguments, Value value) {
  uint8_t* at = arguments + patch.offset;
  switch (patch.kind) {
    case Patch::kInteger: {
      const uint64_t word = value + static_cast<uint64_t>(patch.shift);
      std::memcpy(at, &word, patch.bytes);  // little-endian, as every host of these GPUs
      break;
    }
    case Patch::kFloat32: {
      double wide;
      std::memcpy(&wide, &value, 8);
      const float narrow = static_cast<float>(wide);
      std::memcpy(at, &narrow, 4);
      break;
    }
    case Patch::kFloat64:
      std::memcpy(at, &value, 8);
      break;
    case Patch::kTensorMap:
      driver.readdress(*reinterpret_cast<TensorMap*>(at),
                       reinterpret_cast<void*>(value + static_cast<uint64_t>(patch.shift)));
  }
}

void run_kernel(const Driver& driver, const Step& step, void* stream, const Value* values) {
  alignas(64) uint8_t local[kOnStack];
  std::unique_ptr<TensorMap[]> heap;  // aligned as tensor maps are
  uint8_t* arguments = local;
  if (step.arguments.size() > kOnStack) {
    heap.reset(new TensorMap[step.arguments.size() / sizeof(TensorMap) + 1]);
    arguments = heap[0].bytes;
  }
  std::copy(step.arguments.begin(), step.arguments.end(), arguments);
  for (const Patch& patch : step.patches) fill(driver, patch, arguments, values[patch.slot]);
  void* pointers[kMaxArguments];
  for (size_t i = 0; i < step.offsets.size(); ++i) pointers[i] = arguments + step.offsets[i];
  driver.launch(step.shape, stream, pointers);
}

}  // namespace

bool satisfies(const Plan& plan, const Value* values) {
  for (const Demand& demand : plan.demands) {
    const int64_t value = static_cast<int64_t>(values[demand.slot]);
    switch (demand.kind) {
      case Demand::kMultiple:
        if (value % demand.value) return false;
        break;
      case Demand::kEqual:
        if (value != demand.value) return false;
        break;
      case Demand::kInt32:
        if (value < INT32_MIN || value > INT32_MAX) return false;
    }
  }
  return true;
}

int64_t misfit(const Plan& plan, const Value* values) {
  for (const Patch& patch : plan.narrow) {
    const int64_t word = static_cast<int64_t>(values[patch.slot] + static_cast<uint64_t>(patch.shift));
    const int64_t limit = int64_t{1} << (8 * patch.bytes - 1);
    if (word < -limit || word >= 2 * limit) return patch.slot;
  }
  return -1;
}

void run(const Plan& plan, void* stream, const Value* values, void* blas) {
  for (const Step& step : plan.steps) {
    switch (step.kind) {
      case Step::kFill:
        plan.driver->fill(reinterpret_cast<void*>(values[step.slot] + static_cast<uint64_t>(step.shift)), step.words,
                          step.value, stream);
        break;
      case Step::kProduct: {
        const Value* operands[3] = {values + step.operands[0], values + step.operands[1], values + step.operands[2]};
        multiply(step.product, blas, reinterpret_cast<const void*>(*operands[0]),
                 reinterpret_cast<const void*>(*operands[1]), reinterpret_cast<void*>(*operands[2]));
        break;
      }
      case Step::kMatmul: {
        void* operands[6] = {};
        for (int which = 0; which < 6; ++which) {
          if (step.operands[which] != kNoSlot) operands[which] = reinterpret_cast<void*>(values[step.operands[which]]);
        }
        multiply(*step.matmul, stream, operands);
        break;
      }
      case Step::kKernel:
        run_kernel(*plan.driver, step, stream, values);
    }
  }
}

}  // namespace constrint
