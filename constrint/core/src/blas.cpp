#include "blas.hpp"

#include <mutex>
#include <string>

#include "driver.hpp"

namespace constrint {
namespace {

using GemmEx = int (*)(void* handle, int operation_a, int operation_b, int m, int n, int k, const void* alpha,
                       const void* a, int type_a, int stride_a, const void* b, int type_b, int stride_b,
                       const void* beta, void* c, int type_c, int stride_c, int compute, int algorithm);
using SetMathMode = int (*)(void* handle, int mode);

using LtMatmul = int (*)(void* handle, void* description, const void* alpha, const void* a, void* layout_a,
                         const void* b, void* layout_b, const void* beta, const void* c, void* layout_c, void* d,
                         void* layout_d, const void* algorithm, void* workspace, size_t workspace_bytes, void* stream);
using SetAttribute = int (*)(void* description, int attribute, const void* value, size_t bytes);

GemmEx g_multiply = nullptr;
SetMathMode g_set_math_mode = nullptr;
LtMatmul g_matmul = nullptr;
SetAttribute g_set_attribute = nullptr;
std::mutex g_bias_lock;  // held while the address of a bias is in a description, which several plans may share

constexpr int kDefaultMath = 0;        // CUBLAS_DEFAULT_MATH
constexpr int kWideReductions = 16;    // CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
constexpr int kComputeIn32Bits = 68;   // CUBLAS_COMPUTE_32F
constexpr int kBiasPointer = 8;        // CUBLASLT_MATMUL_DESC_BIAS_POINTER
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

void use_matmul(void* multiply, void* set_attribute) {
  g_matmul = reinterpret_cast<LtMatmul>(multiply);
  g_set_attribute = reinterpret_cast<SetAttribute>(set_attribute);
}

bool has_matmul() { return g_matmul && g_set_attribute; }

void multiply(const Matmul& matmul, void* stream, void* const (&operands)[6]) {
  std::unique_lock<std::mutex> lock(g_bias_lock, std::defer_lock);
  if (matmul.has_bias) {
    lock.lock();
    const void* bias = operands[4];
    check(g_set_attribute(matmul.description, kBiasPointer, &bias, sizeof bias), "cublasLtMatmulDescSetAttribute");
  }
  check(g_matmul(matmul.handle, matmul.description, &matmul.alpha, operands[0], matmul.layouts[0], operands[1],
                 matmul.layouts[1], &matmul.beta, operands[2], matmul.layouts[2], operands[3], matmul.layouts[3],
                 matmul.algorithm, operands[5], matmul.workspace_bytes, stream),
        "cublasLtMatmul");
}

}  // namespace constrint
