// The kernel of `rnn/wgmma/source/backward.cu` on a grid of fibers, right or with a mistake. Gives 1 where its threads waited
// in vain.
#include "layout.cuh"
// The step of a cell that is written in Python.
#include "step.cuh"
#ifdef LAYER_TARGETS
#include "partial.cuh"
#endif
#include "backward.cu"

static_assert(kSharedBytes <= fibers::kSharedBytes, "a block has no more shared memory");

extern "C" int run(
    int mistake, int blocks, unsigned seed, long long most_switches, const element* grad0, const element* grad1,
    const element* grad2, const element* grad3, const float* grad_last, const element* wx, const element* r,
    const float* initial, const element* states, const element* saved, element* grad_slots, float* grad_initial,
    const int* rows, const int* lengths, const int* reset, uint4* exchange, float clip, int shift_free, int batch, int time,
    int heads, int first_group, long long wx_stride_b, long long wx_stride_t) {
  const auto kernel = [&] {
    recurrent_backward(grad0, grad1, grad2, grad3, grad_last, wx, r, initial, states, saved, grad_slots, grad_initial, rows,
                       lengths, reset, exchange, clip, shift_free, batch, time, heads, first_group, wx_stride_b, wx_stride_t);
  };
  fibers::mistake = mistake;
  return fibers::run(kernel, blocks, kThreads, seed, most_switches);
}
