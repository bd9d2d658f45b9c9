// Stands for the driver's library under cuda.bindings: every call is printed as a line of JSON.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <string>

extern "C" {
int cuModuleLoadData(void** module, const void* image) {
  *module = reinterpret_cast<void*>(0x77);
  std::printf("[\"load\", \"%.3s\"]\n", static_cast<const char*>(image) + 1);
  return 0;
}

int cuModuleGetFunction(void** function, void*, const char* name) {
  *function = reinterpret_cast<void*>(0x99);
  std::printf("[\"function\", \"%s\"]\n", name);
  return 0;
}

int cuFuncSetAttribute(void*, int attribute, int value) {
  std::printf("[\"attribute\", %d, %d]\n", attribute, value);
  return 0;
}

int cuCtxGetCurrent(void** context) {
  *context = reinterpret_cast<void*>(0x5);
  return 0;
}

int cuModuleGetGlobal_v2(uint64_t* address, size_t* size, void*, const char* name) {
  *address = 0x1234;
  *size = 16;
  std::printf("[\"global\", \"%s\"]\n", name);
  return 0;
}

int cuMemcpyDtoD_v2(uint64_t target, uint64_t source, size_t size) {
  std::printf("[\"copy\", %lu, %lu, %zu]\n", static_cast<unsigned long>(target), static_cast<unsigned long>(source), size);
  return 0;
}

int cuFuncGetAttribute(int* value, int, void*) {
  *value = 1024;  // the most threads of a block
  return 0;
}

int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}

int cuDeviceGetAttribute(int* value, int, int) {
  *value = 232448;  // shared memory of a block
  return 0;
}

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

int cuLaunchKernelEx(const Config* config, void*, void** parameters, void**) {
  if (config->grid[0] == 4096) return 720;  // CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
  if (config->grid[0] == 8192) return 1;
  std::printf("[\"launch\", [%u, %u, %u], [%u, %u, %u], %u, %lu, [", config->grid[0], config->grid[1], config->grid[2],
              config->block[0], config->block[1], config->block[2], config->shared_bytes,
              static_cast<unsigned long>(reinterpret_cast<uintptr_t>(config->stream)));
  for (unsigned i = 0; i < config->num_attributes; ++i) {
    const Attribute& attribute = config->attributes[i];
    std::printf("%s[%d, %u]", i ? ", " : "", attribute.id, attribute.values[0]);
  }
  std::printf("], [%lu, %lu, %d, %f]]\n", static_cast<unsigned long>(*static_cast<uint64_t*>(parameters[0])),
              static_cast<unsigned long>(*static_cast<uint64_t*>(parameters[1])), *static_cast<int*>(parameters[2]),
              *static_cast<float*>(parameters[3]));
  std::fflush(stdout);
  return 0;
}

int cuGetProcAddress_v2(const char* symbol, void** address, int, uint64_t, int* status) {
  void* self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *address = dlsym(self, (std::string(symbol) + "_v2").c_str());
  if (!*address) *address = dlsym(self, symbol);
  if (status) *status = *address ? 0 : 1;
  return 0;
}

int cuGetProcAddress(const char* symbol, void** address, int version, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, address, version, flags, nullptr);
}
}
