// The kernel of `rnn/wgmma/source/forward.cu` on a grid of fibers, right or with a mistake. Gives 1 where its threads waited
// in vain.
#include "layout.cuh"
#include "step.cuh"
#include "forward.cu"

static_assert(kSharedBytes <= fibers::kSharedBytes, "a block has no more shared memory");

extern "C" int run(
    int mistake, int blocks, unsigned seed, long long most_switches, const element* wx, const element* r, const element* bias,
    const float* initial, element* states, element* saved, const int* rows, const int* lengths, const int* reset,
    uint4* exchange, int batch, int time, int heads, int first_group, long long wx_stride_b, long long wx_stride_t) {
  const auto kernel = [&] {
    recurrent_forward(wx, r, bias, initial, states, saved, rows, lengths, reset, exchange, batch, time, heads, first_group,
                      wx_stride_b, wx_stride_t);
  };
  fibers::mistake = mistake;
  return fibers::run(kernel, blocks, kThreads, seed, most_switches);
}
