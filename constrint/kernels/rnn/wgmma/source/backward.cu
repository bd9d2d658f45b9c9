// The backward time loop of a recurrent layer for many sequences: gradients of the pre-activations of all steps, and of the
// initial states. As in `forward.cu` weights stay in shared memory, and blocks of a group share a head.
//
// The text of `wgmma` for so many columns stands before this (`instruction.py`). Another implementation puts a header of its
// own there that says how blocks meet.
#include "outputs.cuh"
#ifndef LAYER_TARGETS
#include "meeting.cuh"
#endif

// A sequence and how many steps of it count; -1 where there is none.
struct Row {
  int sequence, steps;
};

// States that a step reads before it, from this one on; h is read by cells that say so.
constexpr int kFirstState = READS_H ? 0 : 1;

// What a step reads of a pair of units: slots, states before it and after it, and gradients of the states from outside.
struct Read {
  unsigned slots[SLOTS][kPairs], before[STATES][kPairs], after[STATES][kPairs], outside[STATES][kPairs];
};

__device__ __forceinline__ void read_words(const element* __restrict__ from, bool exists, unsigned (&words)[kPairs]) {
  if (exists) {
    load_words(from, words);
  } else {
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) words[pair] = 0;
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) recurrent_backward(
    const element* __restrict__ grad0,    // (B, T, N, D) gradient of h, or null
    const element* __restrict__ grad1,    // the same of the other states, or null
    const element* __restrict__ grad2, const element* __restrict__ grad3,
    const float* __restrict__ grad_last,  // (S, B, N, D) or null
    const element* __restrict__ wx,       // (B, T, G, N, D); read where the parts of the last gate are kept apart
    const element* __restrict__ r,        // (G, N, D out, D in)
    const float* __restrict__ initial,    // (S, B, N, D) or null
    const element* __restrict__ states,   // (S, B, T, N, D)
    const element* __restrict__ saved,    // (B, T, G, N, D)
    element* grad_slots,                  // (B, T, slots, N, D), written
    float* grad_initial,                  // (S, B, N, D), written
    const int* __restrict__ rows, const int* __restrict__ lengths, const int* __restrict__ reset,
    uint4* exchange,                      // the memory that blocks meet through, filled with ones
    float clip, int shift_free, int batch, int time, int heads, int first_group,
    long long wx_stride_b, long long wx_stride_t) {
  const int part = blockIdx.x % kBlocks, group = first_group + blockIdx.x / kBlocks, head = group % heads;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = lane % 4;
  const int tile = warp % (4 * kRowGroups), depth_group = warp / (4 * kRowGroups);
  const int first_row = kOwnRows == 1 ? depth_group : 0;  // of a thread's two rows, the first that it computes
  const int first_sequence = group / heads * kRows;
  const bool exists = tile < kTiles && first_sequence + tile * 16 < batch;
  const long long row_stride = static_cast<long long>(heads) * kDim, state_stride = batch * (time * row_stride);

  load_weights(r, heads, head, part * kUnits);
  fence_for_matrix_unit();

  // This thread's units are neighbours: the pairs of its place in the quad.
  const int inner = head * kDim + part * kUnits + unit_of_pair(q, 0);
  Row row[kOwnRows];
  float carry[kOwnRows][kPairs][2][STATES];  // gradients of the states
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    const int place = first_sequence + tile * 16 + lane / 4 + 8 * (first_row + i);
    row[i].sequence = !exists || place >= batch ? -1 : rows ? rows[place] : place;
    row[i].steps = row[i].sequence < 0 ? 0 : lengths ? lengths[row[i].sequence] : time;
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
#pragma unroll
      for (int state = 0; state < STATES; ++state) {
        carry[i][pair][0][state] = 0.0f, carry[i][pair][1][state] = 0.0f;
        if (grad_last && row[i].sequence >= 0) {
          const float* at = grad_last + (static_cast<long long>(state) * batch + row[i].sequence) * row_stride + inner;
          carry[i][pair][0][state] = at[2 * pair], carry[i][pair][1][state] = at[2 * pair + 1];
        }
      }
    }
  }
  Meeting meeting(exchange, group, part, tile, depth_group, exists);

  Read read[kOwnRows];
  const auto fetch = [&](int t) {
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const bool is_row = row[i].sequence >= 0 && t >= 0;
      const long long step = static_cast<long long>(row[i].sequence) * time + t;
      const element* at_saved = saved + step * GATES * row_stride + inner;
      const element* at_wx = wx + row[i].sequence * wx_stride_b + t * wx_stride_t + inner;
      const element* at = states + step * row_stride + inner;
#pragma unroll
      for (int slot = 0; slot < SLOTS; ++slot) {
        const bool is_input = APART && slot == GATES - 1;
        const int gate = APART && slot == SLOTS - 1 ? GATES - 1 : slot;
        read_words(is_input ? at_wx + gate * row_stride : at_saved + gate * row_stride, is_row, read[i].slots[slot]);
      }
#pragma unroll
      for (int state = kFirstState; state < STATES; ++state) {
        read_words(at + state * state_stride - row_stride, is_row && t > 0, read[i].before[state]);
      }
#pragma unroll
      for (int state = 1; state < STATES; ++state) {
        if (READS_NEW) read_words(at + state * state_stride, is_row, read[i].after[state]);
      }
#pragma unroll
      for (int state = 0; state < STATES; ++state) {
        const element* grad = state == 0 ? grad0 : state == 1 ? grad1 : state == 2 ? grad2 : grad3;
        read_words(grad + step * row_stride + inner, is_row && grad, read[i].outside[state]);
      }
    }
  };
  fetch(time - 1);
  __syncthreads();
  meeting.begin();

  // After the last step comes the product that the initial states get.
#pragma unroll 1
  for (int step = 0; step <= time; ++step) {
    const int t = time - 1 - step;
    RowSums through = {};
    if (step > 0) meeting.gather(step - 1, through);
    unsigned given[kOwnRows][kGiven], slots[kOwnRows][SLOTS][kPairs];
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const int* restart = reset + static_cast<long long>(row[i].sequence) * time + t;
      const bool is_row = row[i].sequence >= 0;
      const bool restarts = reset && is_row && t >= 0 && restart[0], cut = reset && is_row && step > 0 && restart[1];
      const bool is_on = t < row[i].steps;
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        float grads[2][4] = {};
#pragma unroll
        for (int unit = 0; unit < 2; ++unit) {
          float(&of)[STATES] = carry[i][pair][unit];
          float recurrent = through[i][pair][unit];
          if (clip > 0.0f) recurrent = fminf(fmaxf(recurrent, -clip), clip);
          of[0] += cut ? 0.0f : recurrent;
          if (t < 0) continue;
          float p[4] = {}, before[4] = {}, after[4] = {}, d[STATES];
#pragma unroll
          for (int slot = 0; slot < SLOTS; ++slot) p[slot] = part_of(read[i].slots[slot][pair], unit);
#pragma unroll
          for (int state = 0; state < STATES; ++state) {
            if (READS_NEW && state > 0) after[state] = part_of(read[i].after[state][pair], unit);
            if (state >= kFirstState && !restarts) {
              before[state] = part_of(read[i].before[state][pair], unit);
              if (t == 0 && initial && is_row) {
                const long long at = (static_cast<long long>(state) * batch + row[i].sequence) * row_stride + inner;
                before[state] = initial[at + 2 * pair + unit];
              }
            }
            d[state] = of[state] + part_of(read[i].outside[state][pair], unit);
          }
          step_backward(know(p, before, after, shift_free), shift_free, d, grads[unit]);
#pragma unroll
          for (int state = 0; state < STATES; ++state) {
            if (is_on) of[state] = restarts ? 0.0f : d[state];
          }
        }
#pragma unroll
        for (int slot = 0; slot < SLOTS; ++slot) {
          slots[i][slot][pair] = is_on ? pack(grads[0][slot], grads[1][slot]) : 0;
        }
#pragma unroll
        for (int gate = 0; gate < GATES; ++gate) {
          given[i][GATES * pair + gate] = slots[i][APART && gate == GATES - 1 ? SLOTS - 1 : gate][pair];
        }
      }
    }
    if (t < 0) break;
    meeting.give(step, given);

    // What nobody waits for.
    meeting.after(step);
    fetch(t - 1);
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const long long first = (static_cast<long long>(row[i].sequence) * time + t) * SLOTS * row_stride + inner;
#pragma unroll
      for (int slot = 0; slot < SLOTS; ++slot) {
        store_words(grad_slots + first + slot * row_stride, slots[i][slot], row[i].sequence >= 0);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    if (row[i].sequence < 0) continue;
#pragma unroll
    for (int state = 0; state < STATES; ++state) {
      float* at = grad_initial + (static_cast<long long>(state) * batch + row[i].sequence) * row_stride + inner;
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        at[2 * pair] = carry[i][pair][0][state], at[2 * pair + 1] = carry[i][pair][1][state];
      }
    }
  }
}
