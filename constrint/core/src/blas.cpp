#include "blas.hpp"

#include <string>

#include "driver.hpp"

namespace constrint {
namespace {

using GemmEx = int (*)(void* handle, int operation_a, int operation_b, int m, int n, int k, const void* alpha,
                       const void* a, int type_a, int stride_a, const void* b, int type_b, int stride_b,
                       const void* beta, void* c, int type_c, int stride_c, int compute, int algorithm);
using SetMathMode = int (*)(void* handle, int mode);

GemmEx g_multiply = nullptr;
SetMathMode g_set_math_mode = nullptr;

constexpr int kDefaultMath = 0;        // CUBLAS_DEFAULT_MATH
constexpr int kWideReductions = 16;    // CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
constexpr int kComputeIn32Bits = 68;   // CUBLAS_COMPUTE_32F
constexpr int kDefaultAlgorithm = 99;  // CUBLAS_GEMM_DEFAULT_TENSOR_OP, as torch asks for

void check(int status, const char* call) {
  if (status) throw DriverError(std::string(call) + " failed with status " + std::to_string(status));
}

}  // namespace

void use_blas(void* multiply, void* set_math_mode) {
  g_multiply = reinterpret_cast<GemmEx>(multiply);
  g_set_math_mode = reinterpret_cast<SetMathMode>(set_math_mode);
}

bool has_blas() { return g_multiply && g_set_math_mode; }

void multiply(const Product& product, void* handle, const void* a, const void* b, void* c) {
  const float one = 1, zero = 0;
  check(g_set_math_mode(handle, kWideReductions), "cublasSetMathMode");
  const int status =
      g_multiply(handle, product.operations[0], product.operations[1], product.sizes[0], product.sizes[1],
                 product.sizes[2], &one, a, product.types[0], product.strides[0], b, product.types[1],
                 product.strides[1], &zero, c, product.types[2], product.strides[2], kComputeIn32Bits,
                 kDefaultAlgorithm);
  const int after = g_set_math_mode(handle, kDefaultMath);
  check(status, "cublasGemmEx");
  check(after, "cublasSetMathMode");
}

}  // namespace constrint
