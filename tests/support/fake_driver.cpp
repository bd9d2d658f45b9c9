// Stand-ins for a GPU's driver: FAKE_CUDA has what constrint uses of libcuda, FAKE_HIP of libamdhip64. They note every
// call as a line of JSON and touch no memory that is not theirs. FAKE_EXCHANGE is a DLPack exchange interface for
// tensors of a Python class. tests/support/fake_driver.py compiles and drives all three.
#include <cstdint>
#include <cstring>

#ifndef FAKE_EXCHANGE
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

std::mutex g_lock;
std::string g_log, g_failing, g_shown;
bool g_notes = true;
int g_code = 0, g_device = 0, g_version = 13020, g_resident = 1;
long long g_launches = 0;
void* g_context = reinterpret_cast<void*>(0x1000);
std::map<void*, std::vector<size_t>> g_sizes;
std::map<int, int> g_values;  // of attributes that are asked for

std::string number(uint64_t value) { return std::to_string(value); }
std::string number(const void* pointer) { return number(reinterpret_cast<uint64_t>(pointer)); }
std::string quoted(const std::string& text) { return '"' + text + '"'; }

std::string hex(const void* data, size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    const uint8_t byte = static_cast<const uint8_t*>(data)[i];
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return quoted(text);
}

template <typename T>
std::string list(const T* values, size_t count) {
  std::string text = "[";
  for (size_t i = 0; i < count; ++i) text += (i ? "," : "") + number(static_cast<uint64_t>(values[i]));
  return text + "]";
}

using Facts = std::vector<std::pair<const char*, std::string>>;

// Notes a call, and returns the code that it is to fail with.
int note(const char* call, const Facts& facts) {
  std::lock_guard<std::mutex> guard(g_lock);
  if (g_notes) {
    g_log += "{\"call\":" + quoted(call);
    for (const auto& fact : facts) g_log += "," + quoted(fact.first) + ":" + fact.second;
    g_log += "}\n";
  }
  return g_failing == call ? g_code : 0;
}

bool is_noted() { return g_notes; }

// The bytes of every argument, and how their addresses are aligned; the test has told the sizes.
void add_arguments(Facts& facts, void* function, void** arguments) {
  std::string bytes = "[", places = "[";
  const std::vector<size_t>& sizes = g_sizes[function];
  for (size_t i = 0; i < sizes.size(); ++i) {
    bytes += (i ? "," : "") + hex(arguments[i], sizes[i]);
    places += (i ? "," : "") + number(reinterpret_cast<uint64_t>(arguments[i]) % 128);
  }
  facts.push_back({"arguments", bytes + "]"});
  facts.push_back({"places", places + "]"});
}

int fails(const char* call) { return g_failing == call ? g_code : 0; }

}  // namespace

extern "C" {

const char* fake_log() {
  std::lock_guard<std::mutex> guard(g_lock);
  g_shown.swap(g_log);
  g_log.clear();
  return g_shown.c_str();
}
long long fake_launches() { return g_launches; }
void fake_note(int notes) { g_notes = notes; }
void fake_sizes(void* function, int count, const size_t* sizes) { g_sizes[function].assign(sizes, sizes + count); }
void fake_fail(const char* call, int code) { g_failing = call, g_code = code; }
void fake_context(void* context) { g_context = context; }
void fake_device(int device) { g_device = device; }
void fake_version(int version) { g_version = version; }
void fake_resident(int number) { g_resident = number; }
void fake_value(int attribute, int value) { g_values[attribute] = value; }

#ifdef FAKE_CUDA

struct Attribute {
  int id;
  char pad[4];
  unsigned values[16];
};

struct Config {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  Attribute* attributes;
  unsigned num_attributes;
};

static std::string attributes_of(const Config& config) {
  std::string attributes = "[";
  for (unsigned i = 0; i < config.num_attributes; ++i) {
    const Attribute& attribute = config.attributes[i];
    attributes += (i ? ",[" : "[") + number(static_cast<uint64_t>(attribute.id)) + "," + list(attribute.values, 16) + "]";
  }
  return attributes + "]";
}

int cuGetErrorString(int code, const char** text) {
  *text = "an illegal memory access was encountered";
  return code == 999 ? 1 : 0;
}

int cuLaunchKernelEx(const Config* config, void* function, void** arguments, void** extra) {
  __atomic_add_fetch(&g_launches, 1, __ATOMIC_RELAXED);
  Facts facts;
  if (is_noted()) {
    facts = {{"function", number(function)},
             {"grid", list(config->grid, 3)},
             {"block", list(config->block, 3)},
             {"shared_bytes", number(uint64_t{config->shared_bytes})},
             {"stream", number(config->stream)},
             {"extra", number(extra)},
             {"attributes", attributes_of(*config)}};
    add_arguments(facts, function, arguments);
  }
  return note("cuLaunchKernelEx", facts);
}

int cuCtxGetCurrent(void** context) {
  *context = g_context;
  return fails("cuCtxGetCurrent");
}
int cuCtxGetDevice(int* device) {
  *device = g_device;
  return fails("cuCtxGetDevice");
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = 1000 * attribute + device;
  return fails("cuDeviceGetAttribute");
}
int cuModuleLoadData(void** module, const void* image) {
  *module = reinterpret_cast<void*>(0x77);
  return note("cuModuleLoadData", {{"image", hex(image, std::strlen(static_cast<const char*>(image)))}});
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = reinterpret_cast<void*>(0x99);
  return note("cuModuleGetFunction", {{"module", number(module)}, {"name", quoted(name)}});
}
int cuFuncGetAttribute(int* value, int attribute, void*) {
  *value = g_values[attribute];
  return fails("cuFuncGetAttribute");
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
  return note("cuFuncSetAttribute", {{"function", number(function)},
                                     {"attribute", std::to_string(attribute)},
                                     {"value", std::to_string(value)}});
}
int cuFuncSetCacheConfig(void* function, int config) {
  return note("cuFuncSetCacheConfig", {{"function", number(function)}, {"config", std::to_string(config)}});
}
int cuDriverGetVersion(int* version) {
  *version = g_version;
  return fails("cuDriverGetVersion");
}
int cuMemsetD32Async(uint64_t address, unsigned value, size_t words, void* stream) {
  return note("cuMemsetD32Async", {{"address", number(address)},
                                   {"value", number(uint64_t{value})},
                                   {"words", number(uint64_t{words})},
                                   {"stream", number(stream)}});
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function, int threads, size_t shared_bytes) {
  *blocks = g_resident;
  return note("cuOccupancyMaxActiveBlocksPerMultiprocessor", {{"function", number(function)},
                                                              {"threads", std::to_string(threads)},
                                                              {"shared_bytes", number(uint64_t{shared_bytes})}});
}
int cuOccupancyMaxActiveClusters(int* clusters, void* function, const Config* config) {
  *clusters = g_resident;
  return note("cuOccupancyMaxActiveClusters", {{"function", number(function)},
                                               {"grid", list(config->grid, 3)},
                                               {"block", list(config->block, 3)},
                                               {"shared_bytes", number(uint64_t{config->shared_bytes})},
                                               {"attributes", attributes_of(*config)}});
}
int cuFuncGetParamInfo(void* function, size_t index, size_t* offset, size_t* size) {
  const std::vector<size_t>& sizes = g_sizes[function];
  if (index >= sizes.size()) return 1;
  *offset = 0;
  *size = sizes[index];
  return 0;
}
// The made-up map has every bit set, the address in its first eight bytes aside.
int cuTensorMapEncodeTiled(uint8_t* map, int type, uint32_t rank, void* address, const uint64_t* sizes,
                           const uint64_t* strides, const uint32_t* block, const uint32_t* steps, int interleave,
                           int swizzle, int promotion, int filling) {
  std::memset(map, 0xFF, 128);
  std::memcpy(map, &address, 8);
  return note("cuTensorMapEncodeTiled",
              {{"type", std::to_string(type)},
               {"place", number(reinterpret_cast<uint64_t>(map) % 64)},
               {"sizes", list(sizes, rank)},
               {"strides", list(strides, rank - 1)},
               {"block", list(block, rank)},
               {"steps", list(steps, rank)},
               {"options", "[" + std::to_string(interleave) + "," + std::to_string(swizzle) + "," +
                               std::to_string(promotion) + "," + std::to_string(filling) + "]"}});
}
int cuTensorMapReplaceAddress(uint8_t* map, void* address) {
  std::memcpy(map, &address, 8);
  return note("cuTensorMapReplaceAddress",
              {{"place", number(reinterpret_cast<uint64_t>(map) % 64)}, {"address", number(address)}});
}
// The library for products.
int cublasSetMathMode(void* handle, int mode) {
  return note("cublasSetMathMode", {{"handle", number(handle)}, {"mode", std::to_string(mode)}});
}
int cublasGemmEx(void* handle, int operation_a, int operation_b, int m, int n, int k, const float* alpha, const void* a,
                 int type_a, int stride_a, const void* b, int type_b, int stride_b, const float* beta, void* c,
                 int type_c, int stride_c, int compute, int algorithm) {
  const int operations[2] = {operation_a, operation_b}, sizes[3] = {m, n, k}, types[3] = {type_a, type_b, type_c};
  const int strides[3] = {stride_a, stride_b, stride_c}, how[2] = {compute, algorithm};
  return note("cublasGemmEx", {{"handle", number(handle)},
                               {"operations", list(operations, 2)},
                               {"sizes", list(sizes, 3)},
                               {"factors", "[" + std::to_string(*alpha) + "," + std::to_string(*beta) + "]"},
                               {"addresses", "[" + number(a) + "," + number(b) + "," + number(c) + "]"},
                               {"types", list(types, 3)},
                               {"strides", list(strides, 3)},
                               {"how", list(how, 2)}});
}
int cublasLtMatmulDescSetAttribute(void* description, int attribute, const void* value, size_t bytes) {
  void* address = nullptr;
  std::memcpy(&address, value, bytes < sizeof address ? bytes : sizeof address);
  return note("cublasLtMatmulDescSetAttribute", {{"description", number(description)},
                                                 {"attribute", std::to_string(attribute)},
                                                 {"value", number(address)}});
}
int cublasLtMatmul(void* handle, void* description, const float* alpha, const void* a, void* layout_a, const void* b,
                   void* layout_b, const float* beta, const void* c, void* layout_c, void* d, void* layout_d,
                   const uint64_t* algorithm, void* workspace, size_t workspace_bytes, void* stream) {
  return note("cublasLtMatmul",
              {{"handle", number(handle)},
               {"description", number(description)},
               {"factors", "[" + std::to_string(*alpha) + "," + std::to_string(*beta) + "]"},
               {"addresses", "[" + number(a) + "," + number(b) + "," + number(c) + "," + number(d) + "]"},
               {"layouts", "[" + number(layout_a) + "," + number(layout_b) + "," + number(layout_c) + "," +
                               number(layout_d) + "]"},
               {"algorithm", list(algorithm, 8)},
               {"workspace", "[" + number(workspace) + "," + number(uint64_t{workspace_bytes}) + "]"},
               {"stream", number(stream)}});
}

#else  // FAKE_HIP

const char* hipGetErrorString(int code) { return code == 999 ? nullptr : "invalid device function"; }

static int launched(const char* call, void* function, const unsigned* sizes, unsigned shared_bytes, void* stream,
                    void** arguments, void** extra) {
  __atomic_add_fetch(&g_launches, 1, __ATOMIC_RELAXED);
  Facts facts = {{"function", number(function)},
                 {"grid", list(sizes, 3)},
                 {"block", list(sizes + 3, 3)},
                 {"shared_bytes", number(uint64_t{shared_bytes})},
                 {"stream", number(stream)},
                 {"extra", number(extra)}};
  add_arguments(facts, function, arguments);
  return note(call, facts);
}

int hipModuleLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c,
                          unsigned shared_bytes, void* stream, void** arguments, void** extra) {
  const unsigned sizes[6] = {x, y, z, a, b, c};
  return launched("hipModuleLaunchKernel", function, sizes, shared_bytes, stream, arguments, extra);
}
int hipModuleLaunchCooperativeKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b,
                                     unsigned c, unsigned shared_bytes, void* stream, void** arguments) {
  const unsigned sizes[6] = {x, y, z, a, b, c};
  return launched("hipModuleLaunchCooperativeKernel", function, sizes, shared_bytes, stream, arguments, nullptr);
}
int hipGetDevice(int* device) {
  *device = g_device;
  return fails("hipGetDevice");
}
int hipModuleLoadData(void** module, const void* image) {
  *module = reinterpret_cast<void*>(0x77);
  return note("hipModuleLoadData", {{"image", hex(image, std::strlen(static_cast<const char*>(image)))}});
}
int hipModuleGetFunction(void** function, void* module, const char* name) {
  *function = reinterpret_cast<void*>(0x99);
  return note("hipModuleGetFunction", {{"module", number(module)}, {"name", quoted(name)}});
}
int hipFuncGetAttribute(int* value, int attribute, const void*) {
  *value = g_values[attribute];
  return fails("hipFuncGetAttribute");
}
int hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, size_t) {
  *blocks = g_resident;
  return fails("hipModuleOccupancyMaxActiveBlocksPerMultiprocessor");
}
int hipMemsetD32Async(void* address, int value, size_t words, void* stream) {
  return note("hipMemsetD32Async", {{"address", number(address)},
                                    {"value", std::to_string(value)},
                                    {"words", number(uint64_t{words})},
                                    {"stream", number(stream)}});
}

#endif

}  // extern "C"

#else  // FAKE_EXCHANGE

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace {

constexpr size_t kTensorBytes = 48;  // of dlpack.h's DLTensor
int g_stream_fails = 0;

// A tensor is what the attribute `described` has in memory: a DLTensor that the object owns.
int view(void* object, void* into) {
  PyObject* described = PyObject_GetAttrString(static_cast<PyObject*>(object), "described");
  if (!described) return -1;
  Py_buffer buffer;
  int failed = PyObject_GetBuffer(described, &buffer, PyBUF_SIMPLE);
  Py_DECREF(described);
  if (failed) return -1;
  if (buffer.len == static_cast<Py_ssize_t>(kTensorBytes)) {
    std::memcpy(into, buffer.buf, kTensorBytes);
  } else {
    PyErr_SetString(PyExc_ValueError, "no description of a tensor");
    failed = -1;
  }
  PyBuffer_Release(&buffer);
  return failed;
}

int stream(int32_t type, int32_t index, void** into) {
  if (g_stream_fails) {
    if (g_stream_fails == 1) PyErr_SetString(PyExc_RuntimeError, "there is no stream");
    return -1;
  }
  *into = reinterpret_cast<void*>(static_cast<intptr_t>(1000 * type + index));
  return 0;
}

struct {
  uint32_t major, minor;
  void* others[4];
  int (*view)(void*, void*);
  int (*stream)(int32_t, int32_t, void**);
} g_exchange = {1, 3, {}, view, stream};

}  // namespace

extern "C" {

// A new capsule of the interface, as of this version.
PyObject* fake_exchange(int major) {
  g_exchange.major = static_cast<uint32_t>(major);
  return PyCapsule_New(&g_exchange, "dlpack_exchange_api", nullptr);
}
// 1: finding the current stream fails with an exception; 2: without one.
void fake_stream_fails(int how) { g_stream_fails = how; }

}  // extern "C"

#endif
