// The forward time loop of a recurrent layer: weights stay on the chip for the whole sequence.
#include "cells.cuh"
#include "inputs.cuh"
#include "outputs.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1) recurrent_forward(
    const element* __restrict__ wx,     // (B, T, G, N, D), any strides of B and T that are multiples of 8
    const element* __restrict__ r,      // (G, N, D out, D in)
    const element* __restrict__ bias,   // (G, N, D) or null
    const float* __restrict__ initial,  // (S, B, N, D) or null
    element* states,                    // (S, B, T, N, D), written
    element* saved,                     // (B, T, G, N, D) pre-activations, written, or null
    const int* __restrict__ rows,       // (B,) or null
    const int* __restrict__ lengths,    // (B,) or null
    const int* __restrict__ reset,      // (B, T) or null
    element* exchange,                  // the ring of `exchange.cuh`, filled with ones; null in other placements
    uint4* streamed,                    // memory for the weights that do not fit the chip
#if CELL_PARAMS > 0
    const float* __restrict__ params,   // (P, N, D)
#endif
    int batch, int time, int heads, int first_group, long long wx_stride_b, long long wx_stride_t) {
  const Block block = block_of(heads, first_group);
  const long long row_stride = static_cast<long long>(heads) * D, state_stride = batch * (time * row_stride);
  const int lane = threadIdx.x % 32, inner = block.head * D + block.first;
  (void)lane, (void)exchange, (void)streamed;
  make_row_table(rows, lengths, batch, time, block.tile);

  Weights weights;
  load_weights(weights, shared_memory, block_streamed(streamed), r, heads, block.head, block.first);

  float biases[ITEMS][GATES];
  Row row[ITEMS];          // where there is one tile
  Carry carry;
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    const Place place = place_of(item);
    row[item] = place.exists ? row_of(0, place.row) : Row{-1, 0};
#pragma unroll
    for (int gate = 0; gate < GATES; ++gate) {
      biases[item][gate] = bias && place.exists ? widen(bias[gate * row_stride + inner + place.unit]) : 0.0f;
    }
  }
#if CELL_PARAMS > 0
  float parameters[ITEMS][CELL_PARAMS];
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    const Place place = place_of(item);
#pragma unroll
    for (int i = 0; i < CELL_PARAMS; ++i) {
      parameters[item][i] = place.exists ? params[i * row_stride + inner + place.unit] : 0.0f;
    }
  }
#endif
  for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
      const Place place = place_of(item);
      const int sequence = place.exists ? row_of(tile, place.row).sequence : -1;
#pragma unroll
      for (int state = 0; state < STATES; ++state) {
        carry.of[item][state] = 0.0f;
        if (initial && sequence >= 0) {
          carry.of[item][state] =
              initial[(static_cast<long long>(state) * batch + sequence) * row_stride + inner + place.unit];
        }
      }
    }
    carry.store(tile);
#if PLACEMENT != 2
    // The first step's operand; what stands past the last sequence stays zero in both copies.
    for (int copy = 0; copy < OPERAND_COPIES; ++copy) {
      element* buffer = operand_buffer(tile, copy);
      for (int i = threadIdx.x; i < NB * D; i += THREADS) {
        const int n = i / D, unit = i % D, sequence = row_of(tile, n).sequence;
        const float h = initial && sequence >= 0 ? initial[sequence * row_stride + block.head * D + unit] : 0.0f;
        buffer[n * OPERAND_STRIDE + unit] = operand_of(narrow(h));
      }
    }
#endif
  }

  Inputs inputs([&](int gate, Copied& copied) {
    copied.from = wx + gate * row_stride + inner;
    copied.batch_stride = wx_stride_b, copied.time_stride = wx_stride_t;
  });
  const Outputs outputs([&](int output, Written& written) {
    written.batch_stride = time * row_stride, written.time_stride = row_stride;
    if (output < STATES) {
      written.to = states + output * state_stride + inner;
    } else {
      written.to = saved ? saved + (output - STATES) * row_stride + inner : nullptr;
      written.batch_stride *= GATES, written.time_stride *= GATES;
    }
  });
  Steps ahead, now;
#pragma unroll
  for (int copy = 0; copy < PREFETCH; ++copy) {
    inputs.fetch(ahead.copy, ahead.tile, ahead.step, ahead.step < time);
    ahead.next();
  }
  wait_for_copies<PREFETCH - 1>();
  __syncthreads();
#if PLACEMENT == 1
  open_barriers();
#endif
#if PLACEMENT == 2
  Source source;
#endif

#pragma unroll 1
  for (; now.step < time; now.next()) {
    const int t = now.step, tile = now.tile;
    carry.load(tile);
    float given[ITEMS][GATES];
    const element* x = input_buffer(now.copy);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
      const Place place = place_of(item);
      if (TILES > 1) {
        row[item] = place.exists ? row_of(tile, place.row) : Row{-1, 0};
      }
#pragma unroll
      for (int gate = 0; gate < GATES; ++gate) given[item][gate] = place.exists ? input_of(x, gate, place) : 0.0f;
    }

#if PLACEMENT == 2
    element* ring = ring_of(exchange, block.group, tile);
#endif
    float sums[MT][NT][4] = {};
    float* shared_sums = sum_buffer();
    if (t > 0 || initial) {
#if PLACEMENT == 1
      if (t > 0) wait_for_step(tile, t - 1);
#endif
#if PLACEMENT == 2
      if (TILES > 1 || t < 2) {
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          const long long sequence = row_of(tile, operand_row(n)).sequence;
          const float* at = initial + sequence * row_stride + block.head * D + lane % 4 * VECTOR;
          source.exists[n] = sequence >= 0, source.initial[n] = initial && sequence >= 0 && t == 0 ? at : nullptr;
        }
      }
      source.point(t > 0 ? ring + (t - 1) % RING * STEP_ELEMENTS : nullptr);
#else
      Source source(operand_buffer(tile, OPERAND_COPIES > 1 ? (t + 1) % 2 : 0));
#endif
      multiply(sums, weights, source);
    }
    wait_for_copies<PREFETCH - 2>();
    share_sums(sums, shared_sums);

    float p[ITEMS][4];
    element* out = output_buffer(now.parity);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
      const Place place = place_of(item);
      if (!SUMS || place.exists) {
        const bool restarts = reset && row[item].sequence >= 0 && reset[static_cast<long long>(row[item].sequence) * time + t];
        if (restarts) {
#pragma unroll
          for (int state = 0; state < STATES; ++state) carry.of[item][state] = 0.0f;
        }
        float product[GATES];
        product_of(sums, shared_sums, item, place, product);
#pragma unroll
        for (int gate = 0; gate < GATES; ++gate) {
          float through = product[gate];
          if (restarts) through = 0.0f;
          through += biases[item][gate];
          if (APART && gate == GATES - 1) {
            p[item][gate] = given[item][gate], p[item][SLOTS - 1] = through;
          } else {
            p[item][gate] = given[item][gate] + through;
          }
        }
#if CELL_PARAMS > 0
        step_forward(p[item], carry.of[item], parameters[item]);
#else
        step_forward(p[item], carry.of[item]);
#endif
#pragma unroll
        for (int state = 0; state < STATES; ++state) {
          if (t >= row[item].steps) carry.of[item][state] = 0.0f;
        }
        const element hidden = narrow(carry.of[item][0]);
#if PLACEMENT == 0
        operand_buffer(tile, OPERAND_COPIES > 1 ? t % 2 : 0)[place.row * OPERAND_STRIDE + place.unit] = operand_of(hidden);
#elif PLACEMENT == 2
        element* at = ring + place_in_step(block.first + place.unit, 0, place.row);
        publish(at + t % RING * STEP_ELEMENTS, hidden, row[item].sequence >= 0);
        if (t > 1) forget(at + (t - 2) % RING * STEP_ELEMENTS, row[item].sequence >= 0);
#endif
        put_output(out, 0, place, hidden);
#pragma unroll
        for (int state = 1; state < STATES; ++state) put_output(out, state, place, narrow(carry.of[item][state]));
        if (saved) {
#pragma unroll
          for (int gate = 0; gate < GATES; ++gate) {
            put_output(out, STATES + gate, place, narrow(p[item][APART && gate == GATES - 1 ? SLOTS - 1 : gate]));
          }
        }
      }
    }
    __syncthreads();
#if PLACEMENT == 1
    if (t + 1 < time) send_outputs(out, operand_buffer(tile, t % 2), barrier_of(tile, t % 2), block.part);
#endif

    // What nobody waits for.
#if PLACEMENT == 2
    if (t % FENCE == 0) fence_of_grid();
#endif
    carry.store(tile);
    outputs.write(now.parity, tile, t);
    inputs.fetch(ahead.copy, ahead.tile, ahead.step, ahead.step < time);
    ahead.next();
  }
#if PLACEMENT == 1
  cluster_sync();
#endif
}
