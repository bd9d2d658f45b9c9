// The backward time loop of a recurrent layer: gradients of the pre-activations of all steps, and of the initial states.
// The weights' own gradient is one product over them afterwards.
#include "cells.cuh"
#include "inputs.cuh"
#include "outputs.cuh"

// Places of what a step reads: slots, then states after it but h, and before it (h where the cell reads it), then gradients
// of the states from outside.
constexpr int FIRST_STATE = READS_H ? 0 : 1, AFTER = SLOTS, BEFORE = AFTER + (READS_NEW ? STATES - 1 : 0);
constexpr int OUTSIDE = BEFORE + STATES - FIRST_STATE;

extern "C" __global__ void __launch_bounds__(THREADS, 1) recurrent_backward(
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
    element* exchange,                    // the ring of `exchange.cuh`, filled with ones; null in other placements
    uint4* streamed,                      // memory for the weights that do not fit the chip
#if CELL_PARAMS > 0
    const float* __restrict__ params,     // (P, N, D)
    float* grad_params,                   // (P, B, N, D), written: sums over the steps of sequences
#endif
    float clip, int shift_free, int batch, int time, int heads, int first_group,
    long long wx_stride_b, long long wx_stride_t) {
  const Block block = block_of(heads, first_group);
  const long long row_stride = static_cast<long long>(heads) * D, state_stride = batch * (time * row_stride);
  const int lane = threadIdx.x % 32, inner = block.head * D + block.first;
  (void)lane, (void)exchange, (void)streamed;
  make_row_table(rows, lengths, batch, time, block.tile);

  Weights weights;
  load_weights(weights, shared_memory, block_streamed(streamed), r, heads, block.head, block.first);

  Row row[ITEMS];             // where there is one tile
  Carry carry;                // gradients of the states
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    const Place place = place_of(item);
    row[item] = place.exists ? row_of(0, place.row) : Row{-1, 0};
  }
  for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
      const Place place = place_of(item);
      const int sequence = place.exists ? row_of(tile, place.row).sequence : -1;
#pragma unroll
      for (int state = 0; state < STATES; ++state) {
        carry.of[item][state] = 0.0f;
        if (grad_last && sequence >= 0) {
          carry.of[item][state] =
              grad_last[(static_cast<long long>(state) * batch + sequence) * row_stride + inner + place.unit];
        }
      }
    }
    carry.store(tile);
#if PLACEMENT != 2
    for (int i = threadIdx.x; i < OPERAND_COPIES * OPERAND_ELEMENTS; i += THREADS) operand_buffer(tile, 0)[i] = element(0);
#endif
  }

#if CELL_PARAMS > 0
  float parameters[ITEMS][CELL_PARAMS], of_params[ITEMS][CELL_PARAMS];
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    const Place place = place_of(item);
#pragma unroll
    for (int i = 0; i < CELL_PARAMS; ++i) {
      parameters[item][i] = place.exists ? params[i * row_stride + inner + place.unit] : 0.0f;
      of_params[item][i] = 0.0f;
    }
  }
#endif

  Inputs inputs([&](int input, Copied& copied) {
    const long long step = time * row_stride;  // of a tensor (B, T, N, D)
    copied.batch_stride = step, copied.time_stride = row_stride;
    if (input < SLOTS) {
      if (APART && input == GATES - 1) {
        copied.from = wx + input * row_stride + inner;
        copied.batch_stride = wx_stride_b, copied.time_stride = wx_stride_t;
      } else {
        copied.from = saved + (APART && input == SLOTS - 1 ? GATES - 1 : input) * row_stride + inner;
        copied.batch_stride *= GATES, copied.time_stride *= GATES;
      }
    } else if (input < BEFORE) {
      copied.from = states + (input - AFTER + 1) * state_stride + inner;
    } else if (input < OUTSIDE) {
      copied.from = states + (input - BEFORE + FIRST_STATE) * state_stride + inner - row_stride;
    } else {
      const int state = input - OUTSIDE;
      const element* grad = state == 0 ? grad0 : state == 1 ? grad1 : state == 2 ? grad2 : grad3;
      copied.from = grad ? grad + inner : nullptr;
    }
    copied.is_before = input >= BEFORE && input < OUTSIDE;
  });
  const Outputs outputs([&](int output, Written& written) {
    written.to = grad_slots + output * row_stride + inner;
    written.batch_stride = time * SLOTS * row_stride, written.time_stride = SLOTS * row_stride;
  });
  Steps ahead, now;
#pragma unroll
  for (int copy = 0; copy < PREFETCH; ++copy) {
    inputs.fetch(ahead.copy, ahead.tile, time - 1 - ahead.step, ahead.step < time);
    ahead.next();
  }
  wait_for_copies<PREFETCH - 1>();
  __syncthreads();
#if PLACEMENT == 1
  open_barriers();
#endif
#if PLACEMENT == 2
  Source source;
#pragma unroll
  for (int n = 0; n < NT; ++n) source.initial[n] = nullptr;
#endif

  // After the last step comes the product that the initial states get.
#pragma unroll 1
  for (; now.step <= time; now.next()) {
    const int t = time - 1 - now.step, tile = now.tile;
    carry.load(tile);

    // What does not depend on the other blocks.
    const element* x = input_buffer(now.copy);
    Known known[ITEMS];
    float from_outside[ITEMS][STATES];
    bool restarts[ITEMS];
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
      const Place place = place_of(item);
      if (TILES > 1) {
        row[item] = place.exists ? row_of(tile, place.row) : Row{-1, 0};
      }
      const bool is_on = row[item].sequence >= 0 && t >= 0;
      restarts[item] = reset && is_on && reset[static_cast<long long>(row[item].sequence) * time + t];
      float p[4] = {}, q[4] = {}, c[4] = {};
#pragma unroll
      for (int slot = 0; slot < SLOTS; ++slot) p[slot] = is_on ? input_of(x, slot, place) : 0.0f;
#pragma unroll
      for (int state = FIRST_STATE; state < STATES; ++state) {
        if (READS_NEW && state > 0) c[state] = is_on ? input_of(x, AFTER + state - 1, place) : 0.0f;
        if (t > 0 && is_on && !restarts[item]) q[state] = input_of(x, BEFORE + state - FIRST_STATE, place);
        if (t == 0 && is_on && !restarts[item] && initial) {
          q[state] = initial[(static_cast<long long>(state) * batch + row[item].sequence) * row_stride + inner + place.unit];
        }
      }
#if CELL_PARAMS > 0
      known[item] = know(p, q, c, parameters[item], shift_free);
#else
      known[item] = know(p, q, c, shift_free);
#endif
#pragma unroll
      for (int state = 0; state < STATES; ++state) {
        const element* given = state == 0 ? grad0 : state == 1 ? grad1 : state == 2 ? grad2 : grad3;
        from_outside[item][state] = given && is_on ? input_of(x, OUTSIDE + state, place) : 0.0f;
      }
    }

#if PLACEMENT == 2
    element* ring = ring_of(exchange, block.group, tile);
#endif
    float sums[MT][NT][4] = {};
    float* shared_sums = sum_buffer();
    if (now.step > 0) {
#if PLACEMENT == 1
      wait_for_step(tile, now.step - 1);
#endif
#if PLACEMENT == 2
      if (TILES > 1 || now.step == 1) {
#pragma unroll
        for (int n = 0; n < NT; ++n) source.exists[n] = row_of(tile, operand_row(n)).sequence >= 0;
      }
      source.point(ring + (now.step - 1) % RING * STEP_ELEMENTS);
#else
      Source source(operand_buffer(tile, OPERAND_COPIES > 1 ? (now.step + 1) % 2 : 0));
#endif
      multiply(sums, weights, source);
    }
    wait_for_copies<PREFETCH - 2>();
    share_sums(sums, shared_sums);

    element* out = output_buffer(now.parity);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
      const Place place = place_of(item);
      if (SUMS && !place.exists) continue;
      float product[GATES];
      product_of(sums, shared_sums, item, place, product);
      float through = product[0];
      if (clip > 0.0f) through = fminf(fmaxf(through, -clip), clip);
      if (reset && row[item].sequence >= 0 && now.step > 0) {
        if (reset[static_cast<long long>(row[item].sequence) * time + t + 1]) through = 0.0f;
      }
      carry.of[item][0] += through;
      if (t < 0) continue;
      float d[STATES], grads[4];
#pragma unroll
      for (int state = 0; state < STATES; ++state) d[state] = carry.of[item][state] + from_outside[item][state];
#if CELL_PARAMS > 0
      float of_step[CELL_PARAMS];
      step_backward(known[item], shift_free, d, grads, of_step);
#else
      step_backward(known[item], shift_free, d, grads);
#endif
      const bool is_on = t < row[item].steps;
#if CELL_PARAMS > 0
#pragma unroll
      for (int i = 0; i < CELL_PARAMS; ++i) of_params[item][i] += is_on ? of_step[i] : 0.0f;
#endif
#pragma unroll
      for (int state = 0; state < STATES; ++state) {
        if (is_on) carry.of[item][state] = restarts[item] ? 0.0f : d[state];
      }
#pragma unroll
      for (int slot = 0; slot < SLOTS; ++slot) {
        const element value = is_on ? narrow(grads[slot]) : element(0);
        const bool is_input = APART && slot == GATES - 1;  // this slot goes through no weights
        const int part = APART && slot == SLOTS - 1 ? GATES - 1 : slot;
#if PLACEMENT == 0
        element* operand = operand_buffer(tile, OPERAND_COPIES > 1 ? now.step % 2 : 0);
        if (!is_input) operand[place.row * OPERAND_STRIDE + part * D + place.unit] = operand_of(value);
#elif PLACEMENT == 2
        if (!is_input) {
          element* at = ring + now.step % RING * STEP_ELEMENTS + place_in_step(block.first + place.unit, part, place.row);
          publish(at, value, row[item].sequence >= 0);
        }
#endif
        put_output(out, slot, place, value);
      }
    }
    __syncthreads();
#if PLACEMENT == 1
    if (t >= 0) send_outputs(out, operand_buffer(tile, now.step % 2), barrier_of(tile, now.step % 2), block.part);
#endif
#if PLACEMENT == 2
    if (now.step > 1) forget_step(ring + (now.step - 2) % RING * STEP_ELEMENTS, block.first);
    if (now.step % FENCE == 0) fence_of_grid();
#endif
    carry.store(tile);
    if (t >= 0) outputs.write(now.parity, tile, t);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
      const Place place = place_of(item);
      if (row[item].sequence >= 0) {
        if (t < 0) {
#pragma unroll
          for (int state = 0; state < STATES; ++state) {
            grad_initial[(static_cast<long long>(state) * batch + row[item].sequence) * row_stride + inner + place.unit] =
                carry.of[item][state];
          }
        }
      }
    }
    inputs.fetch(ahead.copy, ahead.tile, time - 1 - ahead.step, ahead.step < time);
    ahead.next();
  }
#if CELL_PARAMS > 0
  // The sums of a place in all tiles stand at its sequence in the first one.
  for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
      const Place place = place_of(item);
      const int sequence = place.exists ? row_of(tile, place.row).sequence : -1;
#pragma unroll
      for (int i = 0; i < CELL_PARAMS; ++i) {
        if (sequence >= 0) {
          grad_params[(static_cast<long long>(i) * batch + sequence) * row_stride + inner + place.unit] =
              tile == 0 ? of_params[item][i] : 0.0f;
        }
      }
    }
  }
#endif
#if PLACEMENT == 1
  cluster_sync();
#endif
}
