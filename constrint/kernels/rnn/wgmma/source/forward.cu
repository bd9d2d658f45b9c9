// The forward time loop of a recurrent layer for many sequences: weights stay in shared memory for the whole sequence, and
// each step multiplies 64 sequences at once by `wgmma`. Blocks of a group share a head; `exchange.cuh` says how they meet.
//
// The text of `wgmma` for so many columns stands before this (`instruction.py`).
#include "outputs.cuh"
#include "sums.cuh"

// A sequence and how many steps of it count; -1 where there is none.
struct Row {
  int sequence, steps;
};

extern "C" __global__ void __launch_bounds__(kThreads, 1) recurrent_forward(
    const element* __restrict__ wx,     // (B, T, G, N, D), any strides of B and T that are multiples of 8
    const element* __restrict__ r,      // (G, N, D out, D in)
    const element* __restrict__ bias,   // (G, N, D) or null
    const float* __restrict__ initial,  // (S, B, N, D) or null
    element* states,                    // (S, B, T, N, D), written
    element* saved,                     // (B, T, G, N, D) pre-activations, written, or null
    const int* __restrict__ rows,       // (B,) or null
    const int* __restrict__ lengths,    // (B,) or null
    const int* __restrict__ reset,      // (B, T) or null
    uint4* exchange,                    // the ring of `exchange.cuh`, filled with ones
#if CELL_PARAMS > 0
    const float* __restrict__ params,   // (P, N, D)
#endif
    int batch, int time, int heads, int first_group, long long wx_stride_b, long long wx_stride_t) {
  const int part = blockIdx.x % kBlocks, group = first_group + blockIdx.x / kBlocks, head = group % heads;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = lane % 4;
  // Warps of the first depth group come first, four of each row group.
  const int tile = warp % (4 * kRowGroups), depth_group = warp / (4 * kRowGroups);
  const int first_row = kOwnRows == 1 ? depth_group : 0;  // of a thread's two rows, the first that it computes
  const int first_sequence = group / heads * kRows;
  const bool exists = tile < kTiles && first_sequence + tile * 16 < batch;
  const long long row_stride = static_cast<long long>(heads) * kDim;

  load_weights(r, heads, head, part * kUnits);
  float* biases = reinterpret_cast<float*>(shared_memory + kBiasAt);
  for (int i = threadIdx.x; i < kColumns; i += kThreads) {
    const int gate = i / kUnits, unit = i % kUnits;
    biases[column_of(gate, unit)] = bias ? widen(bias[gate * row_stride + head * kDim + part * kUnits + unit]) : 0.0f;
  }
  fence_for_matrix_unit();

  // This thread's units are neighbours: the pairs of its place in the quad.
  const int inner = head * kDim + part * kUnits + unit_of_pair(q, 0);
  Row row[kOwnRows];
  float carry[kOwnRows][kPairs][2][STATES];
  unsigned hidden[kOwnRows][kPairs];
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
        if (initial && row[i].sequence >= 0) {
          const float* at = initial + (static_cast<long long>(state) * batch + row[i].sequence) * row_stride + inner;
          carry[i][pair][0][state] = at[2 * pair], carry[i][pair][1][state] = at[2 * pair + 1];
        }
      }
      hidden[i][pair] = pack(carry[i][pair][0][0], carry[i][pair][1][0]);
    }
  }
  uint4* ring = exchange + static_cast<long long>(group) * RING * kStepVectors;
  const Source source(ring, tile, depth_group, exists);
  const Target target(ring, part, tile, depth_group, exists);
  target.publish(-1, hidden);

  unsigned given[kOwnRows][GATES][kPairs];
  const auto fetch = [&](int t) {
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const element* at = wx + row[i].sequence * wx_stride_b + t * wx_stride_t + inner;
#pragma unroll
      for (int gate = 0; gate < GATES; ++gate) {
        if (row[i].sequence >= 0 && t < time) {
          load_words(at + gate * row_stride, given[i][gate]);
        } else {
#pragma unroll
          for (int pair = 0; pair < kPairs; ++pair) given[i][gate][pair] = 0;
        }
      }
    }
  };
  fetch(0);
  __syncthreads();
  const unsigned long long weights = weight_descriptor(depth_group * kOwnSteps);

#pragma unroll 1
  for (int t = 0; t < time; ++t) {
    bool restarts[kOwnRows];
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      restarts[i] = reset && row[i].sequence >= 0 && reset[static_cast<long long>(row[i].sequence) * time + t];
    }
    float sums[kSums];
    product(sums, source, t - 1, weights);
    RowSums through;
    share_sums(sums, through, t % 2, depth_group, tile);

    unsigned gates[kOwnRows][GATES][kPairs], others[kOwnRows][STATES][kPairs];
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        float p[2][4];
#pragma unroll
        for (int unit = 0; unit < 2; ++unit) {
          float(&state)[STATES] = carry[i][pair][unit];
          if (restarts[i]) {
#pragma unroll
            for (int s = 0; s < STATES; ++s) state[s] = 0.0f;
          }
#pragma unroll
          for (int gate = 0; gate < GATES; ++gate) {
            const int eight = GATES * pair + gate;
            float recurrent = through[i][eight][unit];
            if (restarts[i]) recurrent = 0.0f;
            recurrent += biases[8 * eight + 2 * q + unit];
            const float input = part_of(given[i][gate][pair], unit);
            if (APART && gate == GATES - 1) {
              p[unit][gate] = input, p[unit][SLOTS - 1] = recurrent;
            } else {
              p[unit][gate] = input + recurrent;
            }
          }
#if CELL_PARAMS > 0
          float parameters[CELL_PARAMS];
#pragma unroll
          for (int k = 0; k < CELL_PARAMS; ++k) parameters[k] = __ldg(params + k * row_stride + inner + 2 * pair + unit);
          step_forward(p[unit], state, parameters);
#else
          step_forward(p[unit], state);
#endif
#pragma unroll
          for (int s = 0; s < STATES; ++s) {
            if (t >= row[i].steps) state[s] = 0.0f;
          }
        }
        hidden[i][pair] = pack(carry[i][pair][0][0], carry[i][pair][1][0]);
#pragma unroll
        for (int s = 1; s < STATES; ++s) others[i][s][pair] = pack(carry[i][pair][0][s], carry[i][pair][1][s]);
#pragma unroll
        for (int gate = 0; gate < GATES; ++gate) {
          const int slot = APART && gate == GATES - 1 ? SLOTS - 1 : gate;
          gates[i][gate][pair] = pack(p[0][slot], p[1][slot]);
        }
      }
    }
    target.publish(t, hidden);

    // What nobody waits for.
    target.forget(t - 2);
    if (t % FENCE == 0) fence_of_grid();
    fetch(t + 1);
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const bool is_row = row[i].sequence >= 0;
      const long long at = (static_cast<long long>(row[i].sequence) * time + t) * row_stride + inner;
      store_words(states + at, hidden[i], is_row);
#pragma unroll
      for (int s = 1; s < STATES; ++s) store_words(states + s * (batch * (time * row_stride)) + at, others[i][s], is_row);
      if (saved) {
        const long long first = (static_cast<long long>(row[i].sequence) * time + t) * GATES * row_stride + inner;
#pragma unroll
        for (int gate = 0; gate < GATES; ++gate) store_words(saved + first + gate * row_stride, gates[i][gate], is_row);
      }
    }
  }
}
