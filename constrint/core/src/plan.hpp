// A launch plan: kernels whose arguments are laid out once; a launch fills in addresses and numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "blas.hpp"
#include "driver.hpp"

namespace constrint {

// A place in a kernel's arguments that a launch fills in from a slot.
struct Patch {
  enum Kind : uint8_t { kInteger, kFloat32, kFloat64, kTensorMap } kind;
  uint8_t bytes;     // of an integer or address
  uint32_t offset;   // in the arguments
  uint32_t slot;
  int64_t shift;     // bytes added to an address
};

// Property of a slot's value for which the kernel was compiled.
struct Demand {
  enum Kind : uint8_t { kMultiple, kEqual, kInt32 } kind;
  uint32_t slot;
  int64_t value;
};

struct Step {
  enum Kind : uint8_t { kKernel, kFill, kProduct, kMatmul } kind = kKernel;
  // filling
  uint32_t slot = 0;
  int64_t shift = 0;
  size_t words = 0;
  uint32_t value = 0;
  // a kernel
  LaunchShape shape{};
  std::vector<uint8_t> arguments;  // as at 64-byte aligned memory
  std::vector<uint32_t> offsets;   // of every argument
  std::vector<Patch> patches;
  // a library's product of three slots
  Product product{};
  uint32_t operands[6] = {};
  // a library's product with its epilogue, of up to six slots; those that it lacks are kNoSlot
  std::shared_ptr<const Matmul> matmul;
};

// Type of a slot's value; any where no step uses it.
enum class SlotKind : uint8_t { kUnused, kWord, kFloat };

constexpr uint32_t kMaxSlots = 256;
constexpr uint32_t kNoSlot = kMaxSlots;
constexpr int64_t kMaxWords = int64_t{1} << 40;  // filled by one step

struct Plan {
  const Driver* driver = nullptr;
  void* context = nullptr;  // current when the kernels were loaded
  uint32_t num_slots = 0;
  bool multiplies = false;  // a step is a library's product
  SlotKind kinds[kMaxSlots] = {};
  std::vector<Patch> narrow;  // integers of fewer than eight bytes
  std::vector<Step> steps;
  std::vector<Demand> demands;
};

// A slot's value: an address, an integer, or the bits of a double.
using Value = uint64_t;

// Whether the context that the plan's kernels were loaded in is current; without one no plan runs.
inline bool is_current(const Plan& plan) { return plan.context && plan.driver->current() == plan.context; }
// Whether the values are of the kind that the kernels were compiled for.
bool satisfies(const Plan& plan, const Value* values);
// The slot of an integer that is too large for its argument; -1 where there is none.
int64_t misfit(const Plan& plan, const Value* values);
// Enqueues all steps; throws DriverError. Products are enqueued through the library's handle, on its stream.
void run(const Plan& plan, void* stream, const Value* values, void* blas = nullptr);

}  // namespace constrint
