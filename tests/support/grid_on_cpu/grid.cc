// The grid of `grid.h`: its fibers, their order and their stores.
#include "grid.h"

Place threadIdx, blockIdx, gridDim;
unsigned char* shared_memory;  // of the block whose thread runs

namespace fibers {
std::vector<Fiber> all;
std::vector<Block> blocks;
int current, threads, mistake;
static jmp_buf scheduler_place;
static std::unique_ptr<char[]> stacks;
static unsigned long long state;
static long long switches, most_switches;
static bool stuck;

// Random bits (splitmix64).
unsigned random() {
  unsigned long long z = state += 0x9E3779B97F4A7C15ull;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull, z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return static_cast<unsigned>((z ^ z >> 31) >> 32);
}
void give_way() {
  if (!_setjmp(self().place)) _longjmp(scheduler_place, 1);
}
static void go_on(Fiber& f) {
  if (_setjmp(scheduler_place)) return;
  if (f.begun) _longjmp(f.place, 1);
  f.begun = true;
  setcontext(&f.context);
}
// A fiber that waits is not gone on with before all have come.
void wait(Barrier& barrier, int members) {
  const int turn = barrier.turn;
  if (++barrier.came == members) {
    barrier.came = 0, ++barrier.turn;
    return;
  }
  self().waits_at = &barrier, self().turn = turn;
  give_way();
  self().waits_at = nullptr;
}
void wait_for_warp() { wait(own().warps[self().thread / 32], 32); }
void wait_for_group() { wait(own().groups[self().thread / 128], 128); }

static bool has_stores(const Fiber& f) { return !f.stores.empty() || !f.wholes.empty(); }
static void drain_whole(Fiber& f, size_t picked) {
  for (size_t i = 0; i <= picked; ++i) {
    if (f.wholes[i].at != f.wholes[picked].at) continue;
    std::memcpy(f.wholes[i].at, f.wholes[i].words, 4 * f.wholes[i].number);
    f.wholes.erase(f.wholes.begin() + i);
    return;
  }
}
// Lets one store that waits reach memory, the oldest one to its address.
static void drain_one(Fiber& f) {
  const size_t picked = random() % (f.stores.size() + f.wholes.size());
  if (picked >= f.stores.size()) return drain_whole(f, picked - f.stores.size());
  for (size_t i = 0; i <= picked; ++i) {
    if (f.stores[i].first != f.stores[picked].first) continue;
    *f.stores[i].first = f.stores[i].second;
    f.stores.erase(f.stores.begin() + i);
    return;
  }
}
void drain(Fiber& f) {
  while (has_stores(f)) drain_one(f);
}

int run_all(void (*body)(), int number, int count, unsigned seed, long long most) {
  static void (*work)();
  work = body, threads = count, state = seed, switches = 0, most_switches = most, stuck = false;
  blocks.assign(number, Block());
  for (Block& block : blocks) {
    block.memory.assign(kSharedBytes + 1024, 0x7B);
    const auto at = reinterpret_cast<uintptr_t>(block.memory.data());
    block.base = block.memory.data() + (1024 - at % 1024) % 1024;
    block.warps.resize(count / 32), block.groups.resize((count + 127) / 128), block.votes.resize(count / 32), block.words.resize(count);
  }
  all.assign(number * count, Fiber());
  stacks.reset(new char[kStack * all.size()]);
  for (size_t i = 0; i < all.size(); ++i) {
    Fiber& f = all[i];
    f.block = i / count, f.thread = i % count;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = stacks.get() + kStack * i;
    f.context.uc_stack.ss_size = kStack;
    makecontext(&f.context, reinterpret_cast<void (*)()>(+[]() {
                  work();
                  self().finished = true;
                  give_way();
                }), 0);
  }
  // Warps take turns in a random order; some wait for a while.
  std::vector<int> order(all.size() / 32);
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (bool left = true; left && switches < most_switches;) {
    left = false;
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
    for (int warp : order) {
      const bool sleeps = random() % 4 == 0;
      for (int lane = 0; lane < 32; ++lane) {
        Fiber& f = all[warp * 32 + lane];
        for (int i = 0; i < 2 && has_stores(f) && random() % 3 == 0; ++i) drain_one(f);
        left |= !f.finished || has_stores(f);
        if (f.finished || sleeps) continue;
        current = warp * 32 + lane, ++switches;
        if (f.waits_at && f.waits_at->turn == f.turn) continue;
        threadIdx = {f.thread, 0, 0}, blockIdx = {f.block, 0, 0}, shared_memory = blocks[f.block].base;
        go_on(f);
      }
    }
    stuck = left;
  }
  return stuck;
}
}  // namespace fibers

void __syncthreads() { fibers::wait(fibers::own().whole, fibers::threads); }
unsigned __shfl_sync(unsigned, unsigned word, int from) {
  auto& words = fibers::own().words;
  const int thread = fibers::self().thread;
  words[thread] = word;
  fibers::wait_for_warp();
  const unsigned got = words[thread / 32 * 32 + from];
  fibers::wait_for_warp();
  return got;
}
bool __any_sync(unsigned, bool says) {
  int& vote = fibers::own().votes[fibers::self().thread / 32];
  fibers::wait_for_warp();
  if (says) vote = 1;
  fibers::wait_for_warp();
  const bool any = vote;
  fibers::wait_for_warp();
  vote = 0;
  return any;
}
