#include "driver.hpp"

#include <cstring>

#ifndef _WIN32
#include <dlfcn.h>
#endif

namespace constrint {
namespace {

void* open_library(const std::string& library) {
#ifdef _WIN32
  throw DriverError{"launches through the driver are not built for this system"};
#else
  void* handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!handle) throw DriverError{std::string("cannot open ") + library};
  return handle;
#endif
}

template <typename F>
void find(void* handle, const char* name, F& into, bool is_needed = true) {
#ifndef _WIN32
  into = reinterpret_cast<F>(dlsym(handle, name));
#endif
  if (!into && is_needed) throw DriverError{std::string("the driver has no ") + name};
}

// Facts of the driver's interface (cuda.h of CUDA 12 and 13).
constexpr int kCooperative = 2, kClusterDimension = 4, kClusterPolicy = 5, kDependent = 6;
constexpr int kSpread = 1;
constexpr int kRegisters = 4, kLocalBytes = 3, kSharedBytes = 1, kMaxThreads = 0, kMaxDynamicShared = 8;
constexpr int kNonPortableCluster = 14;
constexpr int kInvalidClusterSize = 912;  // the device has no clusters of that size
constexpr int kOptInShared = 97;
constexpr int kPreferShared = 1;
constexpr unsigned kStaticShared = 48 * 1024;

struct Attribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    int flag;
    unsigned dimensions[3];
  } value;
};
static_assert(sizeof(Attribute) == 72, "as in cuda.h");

struct Config {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  Attribute* attributes;
  unsigned num_attributes;
};

class Cuda final : public Driver {
 public:
  explicit Cuda(const std::string& library) {
    void* handle = open_library(library);
    find(handle, "cuGetErrorString", error_string_);
    find(handle, "cuLaunchKernelEx", launch_);
    find(handle, "cuCtxGetCurrent", current_);
    find(handle, "cuCtxGetDevice", device_);
    find(handle, "cuDeviceGetAttribute", device_attribute_);
    find(handle, "cuModuleLoadData", load_);
    find(handle, "cuModuleGetFunction", function_);
    find(handle, "cuFuncGetAttribute", get_attribute_);
    find(handle, "cuFuncSetAttribute", set_attribute_);
    find(handle, "cuFuncSetCacheConfig", set_cache_);
    find(handle, "cuDriverGetVersion", version_);
    find(handle, "cuMemsetD32Async", memset_);
    find(handle, "cuFuncGetParamInfo", parameter_, false);
    find(handle, "cuTensorMapEncodeTiled", encode_, false);
    find(handle, "cuTensorMapReplaceAddress", replace_, false);
    find(handle, "cuOccupancyMaxActiveBlocksPerMultiprocessor", active_blocks_, false);
    find(handle, "cuOccupancyMaxActiveClusters", active_clusters_, false);
  }

  void* current() const override {
    void* context = nullptr;
    return current_(&context) ? nullptr : context;
  }

  bool has_clusters() const override { return true; }

  void launch(const LaunchShape& shape, void* stream, void** parameters) const override {
    Attribute attributes[4];
    Config config{{shape.grid[0], shape.grid[1], shape.grid[2]}, {shape.threads, 1, 1}, shape.shared_bytes,
                  stream, attributes, 0};
    if (shape.dependent) add(config, kDependent).value.flag = 1;
    if (shape.cooperative) add(config, kCooperative).value.flag = 1;
    if (shape.cluster > 1) add_cluster(config, shape.cluster);
    check(launch_(&config, shape.function, parameters, nullptr), "cuLaunchKernelEx");
  }

  void fill(void* address, size_t words, uint32_t value, void* stream) const override {
    check(memset_(reinterpret_cast<uint64_t>(address), value, words, stream), "cuMemsetD32Async");
  }

  Loaded load(const void* image, const char* name) const override {
    Loaded made{};
    void* module = nullptr;
    check(load_(&module, image), "cuModuleLoadData");
    check(function_(&made.function, module, name), "cuModuleGetFunction");
    check(get_attribute_(&made.registers, kRegisters, made.function), "cuFuncGetAttribute");
    check(get_attribute_(&made.local_bytes, kLocalBytes, made.function), "cuFuncGetAttribute");
    check(get_attribute_(&made.max_threads, kMaxThreads, made.function), "cuFuncGetAttribute");
    return made;
  }

  void allow(void* function, unsigned shared_bytes, unsigned cluster) const override {
    if (shared_bytes > kStaticShared) {
      int device = 0, limit = 0, used = 0;
      check(device_(&device), "cuCtxGetDevice");
      check(device_attribute_(&limit, kOptInShared, device), "cuDeviceGetAttribute");
      check(get_attribute_(&used, kSharedBytes, function), "cuFuncGetAttribute");
      check(set_cache_(function, kPreferShared), "cuFuncSetCacheConfig");
      check(set_attribute_(function, kMaxDynamicShared, limit - used), "cuFuncSetAttribute");
    }
    if (cluster > kPortableCluster) check(set_attribute_(function, kNonPortableCluster, 1), "cuFuncSetAttribute");
  }

  int64_t resident(const LaunchShape& shape, unsigned num_sms) const override {
    int number = 0;
    if (shape.cluster <= 1) {
      if (!active_blocks_) return -1;
      check(active_blocks_(&number, shape.function, static_cast<int>(shape.threads), shape.shared_bytes),
            "cuOccupancyMaxActiveBlocksPerMultiprocessor");
      return int64_t{number} * num_sms;
    }
    if (!active_clusters_) return -1;
    Attribute attributes[2];
    Config config{{shape.cluster, 1, 1}, {shape.threads, 1, 1}, shape.shared_bytes, nullptr, attributes, 0};
    add_cluster(config, shape.cluster);
    const int code = active_clusters_(&number, shape.function, &config);
    if (code == kInvalidClusterSize) return 0;
    check(code, "cuOccupancyMaxActiveClusters");
    return int64_t{number} * shape.cluster;
  }

  std::vector<size_t> parameter_bytes(void* function) const override {
    std::vector<size_t> sizes;
    if (!parameter_) return sizes;
    size_t offset = 0, size = 0;
    while (sizes.size() <= kMaxArguments && !parameter_(function, sizes.size(), &offset, &size)) sizes.push_back(size);
    return sizes;
  }

  void encode(TensorMap& map, const TensorMapShape& shape) const override {
    if (!encode_ || !replace_) throw DriverError{"the driver has no tensor maps"};
    const size_t rank = shape.block.size();
    uint64_t sizes[kMaxMapAxes], strides[kMaxMapAxes];
    uint32_t block[kMaxMapAxes], steps[kMaxMapAxes] = {1, 1, 1, 1, 1};
    uint64_t last_byte = 0;
    for (size_t i = 0; i < rank; ++i) {  // the driver wants the fastest axis first
      const size_t at = rank - 1 - i;
      block[i] = static_cast<uint32_t>(shape.block[at]);
      sizes[i] = static_cast<uint64_t>(shape.shape[at]);
      const uint64_t step = static_cast<uint64_t>(shape.strides[at]) * static_cast<uint64_t>(shape.element_bytes);
      if (i) strides[i - 1] = step;
      last_byte += (sizes[i] - 1) * step;
    }
    void* somewhere = reinterpret_cast<void*>(uint64_t{1} << 20);  // replaced at every launch
    check(encode_(&map, shape.element_type, static_cast<uint32_t>(rank), somewhere, sizes, strides, block, steps, 0,
                  shape.swizzle, 2, shape.nan_padding ? 1 : 0),
          "cuTensorMapEncodeTiled");
    int version = 0;
    // Drivers up to CUDA 13.1 mark small tensors in a way that they must not be (as CUTLASS and Triton know).
    if (!version_(&version) && version <= 13010 && last_byte + 1 < 128 * 1024) {
      uint64_t word;
      std::memcpy(&word, map.bytes + 8, 8);
      word &= ~(uint64_t{1} << 21);
      std::memcpy(map.bytes + 8, &word, 8);
    }
  }

  void readdress(TensorMap& map, void* address) const override {
    check(replace_(&map, address), "cuTensorMapReplaceAddress");
  }

 private:
  static Attribute& add(Config& config, int id) {
    Attribute& made = config.attributes[config.num_attributes++];
    std::memset(&made, 0, sizeof made);
    made.id = id;
    return made;
  }

  static void add_cluster(Config& config, unsigned blocks) {
    Attribute& cluster = add(config, kClusterDimension);
    cluster.value.dimensions[0] = blocks;
    cluster.value.dimensions[1] = cluster.value.dimensions[2] = 1;
    add(config, kClusterPolicy).value.flag = kSpread;
  }

  void check(int code, const char* call) const {
    if (!code) return;
    const char* text = nullptr;
    if (error_string_(code, &text) || !text) text = "unknown error";
    throw DriverError{std::string(call) + ": " + text};
  }

  int (*error_string_)(int, const char**) = nullptr;
  int (*launch_)(const Config*, void*, void**, void**) = nullptr;
  int (*current_)(void**) = nullptr;
  int (*device_)(int*) = nullptr;
  int (*device_attribute_)(int*, int, int) = nullptr;
  int (*load_)(void**, const void*) = nullptr;
  int (*function_)(void**, void*, const char*) = nullptr;
  int (*get_attribute_)(int*, int, void*) = nullptr;
  int (*set_attribute_)(void*, int, int) = nullptr;
  int (*set_cache_)(void*, int) = nullptr;
  int (*version_)(int*) = nullptr;
  int (*memset_)(uint64_t, unsigned, size_t, void*) = nullptr;
  int (*parameter_)(void*, size_t, size_t*, size_t*) = nullptr;
  int (*encode_)(TensorMap*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*, const uint32_t*,
                 int, int, int, int) = nullptr;
  int (*replace_)(TensorMap*, void*) = nullptr;
  int (*active_blocks_)(int*, void*, int, size_t) = nullptr;
  int (*active_clusters_)(int*, void*, const Config*) = nullptr;
};

class Hip final : public Driver {
 public:
  explicit Hip(const std::string& library) {
    void* handle = open_library(library);
    find(handle, "hipGetErrorString", error_string_);
    find(handle, "hipModuleLaunchKernel", launch_);
    find(handle, "hipModuleLaunchCooperativeKernel", launch_together_);
    find(handle, "hipGetDevice", device_);
    find(handle, "hipModuleLoadData", load_);
    find(handle, "hipModuleGetFunction", function_);
    find(handle, "hipFuncGetAttribute", get_attribute_);
    find(handle, "hipMemsetD32Async", memset_);
    find(handle, "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", active_blocks_, false);
  }

  void* current() const override {
    int device = 0;
    return device_(&device) ? nullptr : reinterpret_cast<void*>(static_cast<intptr_t>(device) + 1);
  }

  bool has_clusters() const override { return false; }

  void launch(const LaunchShape& s, void* stream, void** parameters) const override {
    if (s.cooperative) {
      check(launch_together_(s.function, s.grid[0], s.grid[1], s.grid[2], s.threads, 1, 1, s.shared_bytes, stream,
                             parameters),
            "hipModuleLaunchCooperativeKernel");
    } else {
      check(launch_(s.function, s.grid[0], s.grid[1], s.grid[2], s.threads, 1, 1, s.shared_bytes, stream, parameters,
                    nullptr),
            "hipModuleLaunchKernel");
    }
  }

  void fill(void* address, size_t words, uint32_t value, void* stream) const override {
    check(memset_(address, static_cast<int>(value), words, stream), "hipMemsetD32Async");
  }

  Loaded load(const void* image, const char* name) const override {
    Loaded made{};
    void* module = nullptr;
    check(load_(&module, image), "hipModuleLoadData");
    check(function_(&made.function, module, name), "hipModuleGetFunction");
    check(get_attribute_(&made.registers, kRegisters, made.function), "hipFuncGetAttribute");
    check(get_attribute_(&made.local_bytes, kLocalBytes, made.function), "hipFuncGetAttribute");
    check(get_attribute_(&made.max_threads, kMaxThreads, made.function), "hipFuncGetAttribute");
    return made;
  }

  void allow(void*, unsigned, unsigned) const override {}  // every launch may take what the device has

  int64_t resident(const LaunchShape& shape, unsigned num_sms) const override {
    if (!active_blocks_) return -1;
    int number = 0;
    check(active_blocks_(&number, shape.function, static_cast<int>(shape.threads), shape.shared_bytes),
          "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor");
    return int64_t{number} * num_sms;
  }

  std::vector<size_t> parameter_bytes(void*) const override { return {}; }
  void encode(TensorMap&, const TensorMapShape&) const override { throw DriverError{"HIP has no tensor maps"}; }
  void readdress(TensorMap&, void*) const override {}

 private:
  void check(int code, const char* call) const {
    if (!code) return;
    const char* text = error_string_(code);
    throw DriverError{std::string(call) + ": " + (text ? text : "unknown error")};
  }

  const char* (*error_string_)(int) = nullptr;
  int (*launch_)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                 void**) = nullptr;
  int (*launch_together_)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                          void**) = nullptr;
  int (*device_)(int*) = nullptr;
  int (*load_)(void**, const void*) = nullptr;
  int (*function_)(void**, void*, const char*) = nullptr;
  int (*get_attribute_)(int*, int, const void*) = nullptr;
  int (*memset_)(void*, int, size_t, void*) = nullptr;
  int (*active_blocks_)(int*, void*, int, size_t) = nullptr;
};

}  // namespace

Driver* open_driver(const std::string& kind, const std::string& library) {
  if (kind == "cuda") return new Cuda(library);
  if (kind == "hip") return new Hip(library);
  throw DriverError{"no driver of the kind " + kind};
}

}  // namespace constrint
