// The GPU's driver, loaded at run time: the functions of libcuda or libamdhip64 for launches, without their headers.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace constrint {

// A call of the driver failed; says which one and why.
struct DriverError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One launch as the driver takes it; the parameters are pointers to the arguments, in order.
struct LaunchShape {
  void* function;
  unsigned grid[3];
  unsigned threads;
  unsigned shared_bytes;
  unsigned cluster;   // blocks of a cluster along x; 1 for none
  bool cooperative;   // all blocks at once, or an error
  bool dependent;     // may begin before the kernel before it ends
};

// The 128 bytes that describe a tensor to the TMA unit.
struct alignas(64) TensorMap {
  uint8_t bytes[128];
};

struct TensorMapShape {
  int element_type;                // the driver's CUtensorMapDataType
  int element_bytes;
  int swizzle;
  bool nan_padding;
  std::vector<int64_t> block;      // slowest axis first
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;    // in elements; the last one is 1
};

// Fields of a tensor map.
constexpr int64_t kMaxMapBlock = 256, kMaxMapSize = int64_t{1} << 32, kMaxMapStride = int64_t{1} << 40;
constexpr size_t kMaxMapAxes = 5;

// The most arguments that a kernel may have here.
constexpr size_t kMaxArguments = 256;

// The most blocks of a cluster that any GPU can have, and that every GPU with clusters can have.
constexpr unsigned kMaxCluster = 16, kPortableCluster = 8;

struct Loaded {
  void* function;
  int registers;
  int local_bytes;
  int max_threads;
};

// A driver library. Its handles are never closed: kernels live as long as the process.
class Driver {
 public:
  virtual ~Driver() = default;
  // The current context of this thread, or its device's number plus one.
  virtual void* current() const = 0;
  virtual bool has_clusters() const = 0;
  virtual void launch(const LaunchShape& shape, void* stream, void** parameters) const = 0;
  // Fills words of four bytes.
  virtual void fill(void* address, size_t words, uint32_t value, void* stream) const = 0;
  virtual Loaded load(const void* image, const char* name) const = 0;
  // Permits launches of a function with this much dynamic shared memory and clusters of this many blocks.
  virtual void allow(void* function, unsigned shared_bytes, unsigned cluster) const = 0;
  // Blocks of this shape resident on `num_sms` SMs at the same time; -1 where the driver does not report it.
  virtual int64_t resident(const LaunchShape& shape, unsigned num_sms) const = 0;
  // Bytes of a function's parameters; empty where the driver does not tell.
  virtual std::vector<size_t> parameter_bytes(void* function) const = 0;
  virtual void encode(TensorMap& map, const TensorMapShape& shape) const = 0;
  virtual void readdress(TensorMap& map, void* address) const = 0;
};

// Opens "cuda" or "hip" from a library; throws DriverError where it is missing or lacks a function.
Driver* open_driver(const std::string& kind, const std::string& library);

}  // namespace constrint
