// What stands before every candidate in CUDA C++: the types of 16 bits, which NVRTC alone does not have.
struct fp16 { unsigned short bits; };
struct bf16 { unsigned short bits; };

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(fp16 value) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
}
__device__ inline float to_float(bf16 value) { return __uint_as_float((unsigned)value.bits << 16); }

template <typename T> struct Rounded;
template <> struct Rounded<float> {
    __device__ static float of(float value) { return value; }
};
template <> struct Rounded<fp16> {
    __device__ static fp16 of(float value) {
        fp16 narrow;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
        return narrow;
    }
};
template <> struct Rounded<bf16> {
    __device__ static bf16 of(float value) {
        bf16 narrow;
        unsigned bits = __float_as_uint(value);
        // To nearest, ties to even; a NaN stays one.
        narrow.bits = value != value ? 0x7fff : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        return narrow;
    }
};
template <typename T> __device__ inline T round_to(float value) { return Rounded<T>::of(value); }
