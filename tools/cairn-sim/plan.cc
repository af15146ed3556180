#include "plan.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <type_traits>

#include "base/random.h"
#include "client/partition/partition.h"

namespace cairn::sim {

namespace {

constexpr int64_t kMs = 1000, kSecond = 1'000'000;
constexpr uint64_t kManyNodesEvery = 97, kManyNodesAt = 40;  // seeds

TablePlan Account(const std::string& name, TableKind kind, Mode mode, Random& random) {
  TablePlan t;
  t.spec = {.name = name, .kind = kind, .element = ElementType::kInt64, .mode = mode};
  if (kind == TableKind::kDense) {
    t.spec.size = static_cast<uint64_t>(random.Between(4, 3000));
  } else {
    t.spec.dim = 4;
  }
  t.keys = static_cast<uint64_t>(random.Between(4, 32));
  return t;
}

TablePlan Floats(const std::string& name, Mode mode, Random& random) {
  TablePlan t;
  t.spec = {.name = name, .kind = random.Chance(0.5) ? TableKind::kDense : TableKind::kSparse, .mode = mode};
  t.spec.optimizer = random.Chance(0.75) ? OptimizerKind::kSgd : OptimizerKind::kSum;
  if (t.spec.kind == TableKind::kDense) {
    t.spec.size =
        static_cast<uint64_t>(random.Chance(0.3) ? random.Between(2000, 5000) : random.Between(1, 300));
  } else {
    t.spec.dim = static_cast<uint32_t>(random.Between(1, 9));
  }
  t.spec.deterministic = mode == Mode::kSync && random.Chance(0.5);
  if (random.Chance(0.15)) t.spec.non_finite = NonFinitePolicy::kAllow;
  const uint64_t seed = random.Next();
  switch (random.Below(4)) {
    case 0: t.spec.init = Init::Zeros(); break;
    case 1: t.spec.init = Init::Constant(0.5f); break;
    case 2: t.spec.init = Init::Uniform(-1.0f, 1.0f, seed); break;
    default: t.spec.init = Init::Normal(0.0f, 0.1f, seed); break;
  }
  t.keys = static_cast<uint64_t>(random.Between(4, 40));
  return t;
}

void MakeTables(Plan& plan, Random& random) {
  auto add = [&](TablePlan t, int64_t low, int64_t high) {
    t.ops = static_cast<uint32_t>(random.Between(low, high));
    t.window = static_cast<uint32_t>(random.Between(1, 24));
    plan.tables.push_back(std::move(t));
  };
  add(Account("accounts", TableKind::kSparse, Mode::kAsync, random), 40, 90);
  if (random.Chance(0.4)) add(Account("ledger", TableKind::kDense, Mode::kAsync, random), 5, 20);
  if (random.Chance(0.5)) {
    const TableKind kind = random.Chance(0.5) ? TableKind::kDense : TableKind::kSparse;
    add(Account("round_accounts", kind, Mode::kSync, random), 5, 20);
  }
  if (random.Chance(0.4)) add(Floats("async_floats", Mode::kAsync, random), 10, 30);
  if (random.Chance(0.75)) add(Floats("weights", Mode::kSync, random), 8, 25);
  if (random.Chance(0.25)) add(Floats("more_weights", Mode::kSync, random), 4, 12);
}

// Ends of one to nine segments.
std::vector<uint64_t> Segments(uint64_t size, Random& random) {
  std::vector<uint64_t> ends;
  for (uint64_t i = random.Below(9); i > 0; --i) ends.push_back(1 + random.Below(size));
  ends.push_back(size);
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

// What dense tables of floats can do beyond a push of the whole.
void MakeDense(TablePlan& t, Random& random) {
  if (random.Chance(0.7)) t.spec.segments = Segments(t.spec.size, random);
  if (t.spec.optimizer == OptimizerKind::kSgd && random.Chance(0.5)) t.spec.optimizer_flags |= kWithMomentum;
  if (random.Chance(0.6)) t.masks = 0.4;
  if (random.Chance(0.5)) t.pieces = 0.5;
}

void MakePhases(TablePlan& t, Random& random) {
  if (t.spec.optimizer != OptimizerKind::kSum && random.Chance(0.2)) t.spec.optimizer_flags |= kReduceSum;
  if (random.Chance(0.3)) t.value_scales = 0.3;
  if (!random.Chance(0.6)) return;
  t.two_phase = true;
  if (random.Chance(0.4)) t.skip_every = static_cast<uint32_t>(random.Between(3, 7));
  if (random.Chance(0.3)) t.not_finite = 0.08;
  t.clips = random.Chance(0.5);
}

void MakeRounds(TablePlan& t, Random& random) {
  if (random.Chance(0.4)) t.joins = true;
  if (t.spec.kind != TableKind::kDense || t.spec.element != ElementType::kFloat32) return;
  if (random.Chance(0.3)) t.assign_every = static_cast<uint32_t>(random.Between(3, 9));
  MakePhases(t, random);
}

// Tables as a trainer has them; drawn apart from the others, which a change here leaves alone.
void MakeModels(Plan& plan, Random random) {
  auto add = [&](const char* name, Mode mode, int64_t low, int64_t high) {
    TablePlan t;
    t.spec = {.name = name, .mode = mode, .optimizer = OptimizerKind::kSgd};
    t.spec.size =
        static_cast<uint64_t>(random.Chance(0.5) ? random.Between(1100, 4000) : random.Between(1, 300));
    t.spec.init = Init::Uniform(-1.0f, 1.0f, random.Next());
    t.spec.deterministic = mode == Mode::kSync && random.Chance(0.5);
    t.ops = static_cast<uint32_t>(random.Between(low, high));
    t.window = static_cast<uint32_t>(random.Between(1, 8));
    plan.tables.push_back(std::move(t));
  };
  if (random.Chance(0.5)) add("model", Mode::kSync, 5, 14);
  if (random.Chance(0.4)) add("parameters", Mode::kAsync, 5, 14);
  for (TablePlan& t : plan.tables) {
    const bool dense = t.spec.kind == TableKind::kDense && t.spec.element == ElementType::kFloat32;
    if (dense) MakeDense(t, random);
    if (t.spec.mode == Mode::kSync) MakeRounds(t, random);
    t.assign_once = dense && random.Chance(t.spec.mode == Mode::kAsync ? 0.6 : 0.4);
  }
}

// Rows with an optimizer's state, as embeddings have them; drawn apart too.
void MakeRows(Plan& plan, Random random) {
  using enum OptimizerKind;
  auto add = [&](const char* name, Mode mode, int64_t low, int64_t high) {
    TablePlan t;
    t.spec = {.name = name, .kind = TableKind::kSparse, .mode = mode};
    constexpr OptimizerKind kKinds[] = {kAdagrad, kSparseAdam, kRowwiseAdagrad, kFtrl, kSgd};
    t.spec.optimizer = kKinds[random.Below(std::size(kKinds))];
    const bool accumulates = t.spec.optimizer != kSparseAdam && t.spec.optimizer != kSgd;
    if (accumulates && random.Chance(0.5)) t.spec.initial_state = 0.125f;
    t.spec.dim = static_cast<uint32_t>(random.Between(1, 9));
    t.spec.init = Init::Uniform(-1.0f, 1.0f, random.Next());
    if (random.Chance(0.5)) t.spec.init.stream = random.Next();
    if (random.Chance(0.2)) t.spec.optimizer_flags |= kMaximize;
    t.spec.deterministic = mode == Mode::kSync && random.Chance(0.5);
    t.keys = static_cast<uint64_t>(random.Between(4, 40));
    if (random.Chance(0.6)) t.assign_rows = 0.2;
    t.ops = static_cast<uint32_t>(random.Between(low, high));
    t.window = static_cast<uint32_t>(random.Between(1, 12));
    if (mode == Mode::kSync) {
      if (random.Chance(0.4)) t.joins = true;
      MakePhases(t, random);
    }
    plan.tables.push_back(std::move(t));
  };
  if (random.Chance(0.5)) add("embedding", Mode::kSync, 5, 14);
  if (random.Chance(0.4)) add("rows", Mode::kAsync, 8, 20);
}

// Values in 16 bits; drawn apart too.
void MakeNarrow(Plan& plan, Random random) {
  for (TablePlan& t : plan.tables) {
    const bool can = t.spec.kind == TableKind::kSparse && t.spec.element == ElementType::kFloat32;
    if (can && random.Chance(0.4))
      t.spec.storage = random.Chance(0.5) ? Storage::kBfloat16 : Storage::kFloat16;
  }
}

// Frames are coded from 512 bytes on: most of these are as large.
void MakeLargeEnough(TablePlan& t, Random& random) {
  if (t.spec.kind == TableKind::kSparse) {
    const bool accounts = t.spec.element == ElementType::kInt64;
    t.spec.dim = accounts ? 4 * static_cast<uint32_t>(random.Between(10, 30))
                          : static_cast<uint32_t>(random.Between(40, 130));
    return;
  }
  if (t.spec.size >= 1000) return;
  const uint64_t times = 1 + 1000 / t.spec.size;
  t.spec.size *= times;
  for (uint64_t& end : t.spec.segments) end *= times;
}

// Less on the wire, under some seeds; drawn apart and when all else is, so that the others stay as they are.
void MakeWireFormats(Plan& plan, Random random) {
  if (!random.Chance(0.25)) return;
  for (TablePlan& t : plan.tables) {
    if (!random.Chance(0.7)) continue;
    const bool dense = t.spec.kind == TableKind::kDense, floats = t.spec.element == ElementType::kFloat32;
    if (random.Chance(0.7)) MakeLargeEnough(t, random);
    constexpr WireFormat kFormats[] = {WireFormat::kLz4, WireFormat::kFloat16, WireFormat::kBfloat16,
                                       WireFormat::kTopK, WireFormat::kTopK};
    t.spec.wire = kFormats[floats ? random.Below(dense ? 5 : 3) : 0];
    if (t.spec.wire != WireFormat::kTopK) continue;
    constexpr float kParts[] = {0.02f, 0.1f, 0.4f};
    t.spec.wire_topk = kParts[random.Below(std::size(kParts))];
    if (t.spec.mode == Mode::kSync && random.Chance(0.5)) t.value_scales = 0.4;
  }
}

void MakeFaults(Plan& plan, Random& random) {
  FaultProfile& n = plan.network;
  n.delay_us = random.Between(50, 2000);
  n.jitter_us = random.Between(10, 3000);
  if (plan.severity == 0) return;
  const double scale = plan.severity == 1 ? 0.3 : plan.severity == 2 ? 1.0 : 3.0;
  // Not every kind under every seed: some histories need calm on one side.
  auto maybe = [&](double chance, double p) { return random.Chance(chance) ? p * scale : 0; };
  n.long_delay = maybe(0.5, 0.004);
  n.long_delay_us = random.Between(200 * kMs, 8 * kSecond);
  n.loss = maybe(0.6, 0.01);
  n.reorder = maybe(0.6, 0.03);
  n.reorder_us = random.Between(1 * kMs, 300 * kMs);
  n.duplicate = maybe(0.6, 0.03);
  n.late_duplicate = maybe(0.6, 0.02);
  n.late_us = random.Between(2 * kSecond, 25 * kSecond);
  n.reset = maybe(0.6, 0.005);
  plan.partitions = maybe(0.5, 0.3);
  plan.worker_kills = maybe(0.6, 0.25);
  plan.scheduler_kills = maybe(0.6, 0.2);
  plan.store_crashes = maybe(0.4, 0.016);  // per step of a write to the log
  plan.pauses = maybe(0.5, 0.25);
  plan.twins = maybe(0.3, 0.06);
  plan.slow = maybe(0.3, 0.15);
}

// Owners, and what happens to servers; drawn apart too.
void MakeOwners(Plan& plan, Random random) {
  const double dice = static_cast<double>(random.Below(100)) / 100;
  plan.replicas = dice < 0.15 ? 1 : dice < 0.65 ? 2 : 3;
  if (random.Chance(0.5)) plan.servers = std::max(plan.servers, plan.replicas);
  if (plan.replicas > 1 && random.Chance(0.25)) ++plan.servers;
  plan.servers = std::min(plan.servers, 5u);
  while (plan.threads.size() < plan.servers)
    plan.threads.push_back(static_cast<uint32_t>(random.Between(1, 3)));
  if (plan.replicas > 1 && plan.servers > 1 && random.Chance(0.15)) plan.min_in_sync = 2;
  if (plan.replicas > 1) plan.slots = std::min(plan.slots, 40u);
  plan.replica_resend_us = random.Between(300 * kMs, 3 * kSecond);
  plan.slow_after_us = random.Between(2 * kSecond, 8 * kSecond);
  plan.hash_every_us = random.Between(200 * kMs, 3 * kSecond);
  plan.most_unconfirmed_bytes =
      static_cast<uint64_t>(random.Chance(0.3) ? random.Between(20'000, 200'000) : 256 << 20);
  if (random.Chance(0.3)) plan.late_servers = static_cast<uint32_t>(random.Between(1, 2));
  if (random.Chance(0.25)) plan.drains = static_cast<uint32_t>(random.Between(1, 2));
  if (random.Chance(0.2)) plan.scales = static_cast<uint32_t>(random.Between(1, 2));
  plan.settle = random.Chance(0.3);
  plan.depose = plan.replicas > 1 && random.Chance(0.2);
  // Work that lasts as long as the faults do.
  if (random.Chance(0.6)) plan.think_us = random.Between(150 * kMs, 600 * kMs);
  if (random.Chance(0.25)) plan.schedulers = 3;
  if (plan.severity == 0) return;
  const double scale = plan.severity == 1 ? 0.4 : plan.severity == 2 ? 1.0 : 2.0;
  auto maybe = [&](double chance, double p) { return random.Chance(chance) ? p * scale : 0; };
  plan.server_kills = maybe(0.7, 0.35);
  plan.server_silence = maybe(0.7, 0.3);
  plan.server_cuts = maybe(0.5, 0.15);
  plan.slow_links = maybe(0.5, 0.4);
  plan.kv_faults = maybe(0.6, 0.02);
  plan.lease_ends = maybe(0.5, 0.05);
}

// Under some seeds a bit turns over at a backup now and then. It has to be found and mended before that
// backup is needed, so nobody comes or goes on purpose, and the job waits until it is. Drawn apart too.
void MakeMemoryFaults(Plan& plan, Random random) {
  if (plan.replicas < 2 || plan.servers < 2 || plan.lose_server || !random.Chance(0.12)) return;
  plan.memory_faults = 0.03;
  plan.settle = true;
  plan.late_servers = plan.drains = plan.scales = 0;
  plan.slots = std::min(plan.slots, 12u);  // each is compared in its turn
  plan.hash_every_us = random.Between(100 * kMs, 600 * kMs);
}

// Under a few seeds there are many nodes, each of which does less.
void MakeLarge(Plan& plan, Random random) {
  plan.servers = static_cast<uint32_t>(random.Between(6, 20));
  plan.workers = static_cast<uint32_t>(random.Between(12, 38 - plan.servers));
  plan.late_workers = std::min(plan.late_workers, 1u);
  plan.threads.assign(plan.servers, 1);
  plan.slots = static_cast<uint32_t>(random.Between(24, 48));
  plan.churn_tables = false;
  plan.patience = 4;
  for (TablePlan& t : plan.tables) {
    t.ops = std::max(2u, t.ops / 8);
    t.window = std::min(t.window, 3u);
  }
}

// Errors of the scheduler's disk; drawn apart too.
void MakeDisk(Plan& plan, Random random) {
  if (plan.severity > 0 && random.Chance(0.3)) plan.sync_failures = 0.02 * plan.severity;
}

// Bounds so small that they are reached. Not too many under one seed: each slows the rest down. Drawn
// apart too.
void MakeBounds(Plan& plan, Random random) {
  auto maybe = [&](auto& bound, double chance, int64_t low, int64_t high) {
    const int64_t tiny = random.Between(low, high);
    if (random.Chance(chance)) bound = static_cast<std::remove_reference_t<decltype(bound)>>(tiny);
  };
  maybe(plan.max_unacked_frames, 0.3, 1, 4);
  maybe(plan.early_budget, 0.2, 1000, 5000);
  server::ShardBounds& shard = plan.shard_bounds;
  maybe(shard.copy_pieces_under_way, 0.3, 1, 3);
  maybe(shard.most_before_copy_bytes, 0.2, 0, 3000);
  maybe(shard.small_copy_bytes, 0.2, 0, 3000);
  maybe(shard.most_later_bytes, 0.2, 0, 1000);
  maybe(shard.batch_bytes, 0.2, 1, 2000);
  maybe(shard.most_operation_bytes, 0.08, 300, 4000);
  maybe(shard.most_compared_bytes, 0.1, 0, 4000);
  maybe(shard.most_held_bytes, 0.2, 0, 2000);
  scheduler::SchedulerBounds& scheduler = plan.scheduler_bounds;
  maybe(scheduler.log_bytes, 0.4, 0, 20'000);
  maybe(scheduler.recent_states, 0.3, 0, 4);
  maybe(scheduler.table_requests, 0.2, 2, 5);
  maybe(scheduler.table_answers, 0.2, 2, 5);
  maybe(plan.max_first_bytes, 0.3, 1000, 1000);
}

// How callers make their calls. Drawn apart too.
void MakeCallers(Plan& plan, Random random) {
  plan.most_reserved_bytes =
      random.Chance(0.35) ? static_cast<uint64_t>(random.Between(60, 3000)) : plan.max_unacked_bytes;
  plan.part_bytes = client::kFrameTargetBytes;
  if (random.Chance(0.5))
    plan.part_bytes = static_cast<uint64_t>(random.Between(1, random.Chance(0.5) ? 60 : 600));
  if (random.Chance(0.6)) plan.trips = 0.2;
  if (random.Chance(0.7)) plan.push_pulls = 0.2;
  if (plan.severity > 0 && !plan.only_cuts && random.Chance(0.2)) plan.closes = 0.05;
}

// A table that workers read within a bound of each other's steps. Drawn apart, and last: no other table is
// another one for it.
void MakeBounded(Plan& plan, Random random) {
  if (!random.Chance(0.4)) return;
  TablePlan t;
  t.spec = {.name = "bounded", .kind = TableKind::kSparse, .element = ElementType::kInt64, .dim = 1};
  constexpr uint32_t kStaleness[] = {0, 0, 1, 3};
  t.spec.staleness = kStaleness[random.Below(std::size(kStaleness))];
  t.ops = static_cast<uint32_t>(plan.workers > 8 ? random.Between(1, 3) : random.Between(4, 12));
  plan.tables.push_back(std::move(t));
}

// How long a scheduler waits before it gives partitions up, and cuts of it, which are shorter than that.
// Under some seeds nothing else goes wrong. Drawn apart too.
void MakeSchedulerCuts(Plan& plan, Random random) {
  plan.lost_after_us = random.Between(16 * kSecond, 40 * kSecond);
  if (plan.severity > 0 && random.Chance(0.5)) plan.scheduler_cuts = 0.06;
  plan.only_cuts = !plan.lose_server && random.Chance(0.08);
  if (!plan.only_cuts) return;
  plan.scheduler_cuts = 0.6;
  plan.heal_us = random.Between(20 * kSecond, 40 * kSecond);
  plan.network = {};
  plan.network.delay_us = random.Between(50, 2'000);
  plan.partitions = plan.worker_kills = plan.scheduler_kills = plan.store_crashes = plan.pauses = plan.twins =
      0;
  plan.server_kills = plan.server_silence = plan.server_cuts = plan.lease_ends = plan.slow_links = plan.slow =
      0;
  plan.memory_faults = plan.kv_faults = plan.sync_failures = 0;
  plan.depose = plan.short_deadlines = false;
  plan.settle = true;  // the job lasts until then
  plan.late_servers = plan.drains = plan.scales = 0;
  if (!random.Chance(0.5)) return;
  plan.heartbeat_us = 300'000;
  plan.dead_after_us = 1'500'000;
}

// With three owners a new primary dies before it has sent again what its backups had confirmed.
void AimAtLostTails(Plan& plan) {
  plan.replicas = 3;
  plan.servers = std::max(plan.servers, 4u);
  plan.min_in_sync = 1;
  plan.slots = std::min(plan.slots, 12u);
  plan.server_kills = std::max(plan.server_kills, 1.2);
  plan.server_cuts = std::max(plan.server_cuts, 0.4);
  plan.slow_links = std::max(plan.slow_links, 0.5);
  plan.think_us = std::min(plan.think_us, 40 * kMs);
  plan.shard_bounds.batch_bytes = 1;  // each operation is a frame of its own
}

// Every push of rows goes in parts, and few bytes fit.
void AimAtParts(Plan& plan) {
  plan.part_bytes = 1;
  plan.most_reserved_bytes = uint64_t{64} << 20;
  plan.think_us = std::min(plan.think_us, 20 * kMs);
}

}  // namespace

Plan MakePlan(uint64_t seed) {
  Random random(Mix64(seed, 0xCA1124));
  Plan plan;
  plan.seed = seed;
  const double dice = static_cast<double>(random.Below(100)) / 100;
  plan.severity = dice < 0.12 ? 0 : dice < 0.5 ? 1 : dice < 0.85 ? 2 : 3;
  plan.lose_server = random.Chance(0.08);
  plan.servers = static_cast<uint32_t>(random.Between(1, 4));
  for (uint32_t i = 0; i < plan.servers; ++i)
    plan.threads.push_back(static_cast<uint32_t>(random.Between(1, 3)));
  plan.slots = static_cast<uint32_t>(random.Between(8, random.Chance(0.3) ? 64 : 20));
  plan.workers = static_cast<uint32_t>(random.Between(1, 5));
  plan.late_workers = random.Chance(0.5) ? static_cast<uint32_t>(random.Between(1, 2)) : 0;
  MakeTables(plan, random);
  MakeModels(plan, Random(Mix64(seed, 0x30DE1)));
  MakeRows(plan, Random(Mix64(seed, 0x40E5)));
  MakeNarrow(plan, Random(Mix64(seed, 0x0FF5E7)));
  plan.churn_tables = random.Chance(0.35);
  plan.rogue = random.Chance(0.3);
  plan.hyper_mismatch = random.Chance(0.25);
  plan.early_leave = random.Chance(0.4);
  plan.short_deadlines = random.Chance(0.15);
  plan.give_up = random.Chance(0.5);
  plan.barriers = random.Chance(0.6) ? static_cast<uint32_t>(random.Between(1, 8)) : 0;
  plan.max_restarts = static_cast<uint32_t>(random.Chance(0.1) ? 0 : random.Between(2, 5));
  plan.split = random.Chance(0.6) ? 0.4 : 0;
  plan.max_unacked_bytes = static_cast<uint64_t>(random.Chance(0.3) ? random.Between(500, 8000) : 64 << 20);
  plan.resend_after_us = random.Chance(0.3) ? 3 * kSecond : random.Between(400 * kMs, 1500 * kMs);
  plan.still_waiting_us = plan.resend_after_us / random.Between(2, 4);
  plan.think_us = random.Between(1 * kMs, 120 * kMs);
  MakeFaults(plan, random);
  plan.heal_us = random.Between(8 * kSecond, 25 * kSecond);
  MakeOwners(plan, Random(Mix64(seed, 0x0E4E25)));
  if (seed % kManyNodesEvery == kManyNodesAt) MakeLarge(plan, Random(Mix64(seed, 0x1A46E)));
  MakeMemoryFaults(plan, Random(Mix64(seed, 0xB17)));
  MakeDisk(plan, Random(Mix64(seed, 0xD15C)));
  MakeBounds(plan, Random(Mix64(seed, 0xB0D5)));
  MakeSchedulerCuts(plan, Random(Mix64(seed, 0xC075)));
  MakeCallers(plan, Random(Mix64(seed, 0xCA11E4)));
  plan.last_word = plan.schedulers == 1 && !plan.lose_server && Random(Mix64(seed, 0x1A57)).Chance(0.15);
  // What is too large to be sent costs its slot the backups, every time: it would never be at rest.
  if (plan.settle) plan.shard_bounds.most_operation_bytes = server::ShardBounds{}.most_operation_bytes;
  plan.tells_of_ends = Random(Mix64(seed, 0xE4DED)).Chance(0.5);
  plan.two_leaders =
      plan.schedulers > 1 && !plan.only_cuts && !plan.lose_server && Random(Mix64(seed, 0x21EAD)).Chance(0.5);
  plan.impatient = Random(Mix64(seed, 0x74AFF1C)).Chance(0.3);
  MakeWireFormats(plan, Random(Mix64(seed, 0xC0DED)));
  MakeBounded(plan, Random(Mix64(seed, 0xB0DED)));
  return plan;
}

void AimAt(planted::Bug bug, Plan& plan) {
  if (plan.severity == 0 || plan.lose_server || plan.only_cuts) return;  // calm, or what goes wrong is chosen
  using planted::Bug;
  if (bug == Bug::kTailForgotten) AimAtLostTails(plan);
  if (bug == Bug::kClosedInBetween || bug == Bug::kPartsDenied || bug == Bug::kPartsEarly) AimAtParts(plan);
  if (bug == Bug::kClosedInBetween || bug == Bug::kTripLost) plan.closes = std::max(plan.closes, 0.3);
  if (bug == Bug::kTripLost) plan.trips = 0.6;
  if (bug == Bug::kPartsDenied) plan.twins = std::max(plan.twins, 0.6);
  if (bug == Bug::kPartsEarly) {
    plan.short_deadlines = true;
    plan.max_unacked_bytes = std::min<uint64_t>(plan.max_unacked_bytes, 400);
  }
}

}  // namespace cairn::sim
