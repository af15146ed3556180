// The partition against a naive reference: random tables, keys, repetitions and slot maps.
#include "client/partition/partition.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "base/random.h"
#include "client/partition/finite.h"
#include "client/partition/partition_reader_testing.h"
#include "client/partition/scatter.h"
#include "client/partition/slot_grouping.h"
#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

TEST(SparsePartition, PushesAgreeWithANaiveReference) {
  BufferPool pool;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const uint32_t slots = 1 + static_cast<uint32_t>(random.Below(40)),
                   dim = 1 + static_cast<uint32_t>(random.Below(9));
    const wire::ClusterState state = StateOf(1 + static_cast<uint32_t>(random.Below(3)),
                                             1 + static_cast<uint32_t>(random.Below(3)), slots, random);
    const bool sync = random.Chance(0.5);
    const wire::TableInfo table{
        TableId{3},
        {.name = "e", .kind = TableKind::kSparse, .mode = sync ? Mode::kSync : Mode::kAsync, .dim = dim},
        {}};
    const size_t n = random.Below(300);
    std::vector<RowKey> keys(n);
    std::vector<float> rows(n * dim);
    for (RowKey& key : keys) key = random.Below(1 + random.Below(400));
    for (float& v : rows) v = static_cast<float>(random.Between(-1000, 1000)) / 7;

    std::map<RowKey, std::vector<float>> sums;
    std::map<uint32_t, std::vector<RowKey>> by_slot;  // in the order of the array
    for (size_t i = 0; i < n; ++i) {
      auto [at, fresh] = sums.try_emplace(keys[i], rows.begin() + i * dim, rows.begin() + (i + 1) * dim);
      if (fresh) by_slot[wire::SlotOfKey(keys[i], slots).value].push_back(keys[i]);
      for (uint32_t d = 0; d < dim && !fresh; ++d) at->second[d] += rows[i * dim + d];
    }

    std::vector<float> out(n * dim, -1);
    PartitionInput input{.state = &state,
                         .table = &table,
                         .keys = keys,
                         .values = std::as_bytes(std::span(rows)),
                         .out = std::as_writable_bytes(std::span(out)),
                         .weight = sync ? 2.0 : 1.0,
                         .pull_after = sync};
    Result<Request> request = sync ? PrepareRound(input, pool) : PreparePush(input, pool);
    ASSERT_TRUE(request.ok());
    std::map<RowKey, std::vector<float>> got;
    std::map<uint32_t, std::vector<RowKey>> got_by_slot;
    std::map<Link, int> marks;
    for (const ShardPart& part : request->parts) {
      const Seen seen = Read(part, pool);
      ExpectRouted(state, part, seen);
      const std::vector<float> values = Floats(seen.values);
      size_t k = 0;
      for (const wire::SlotEntry& entry : seen.entries) {
        for (uint32_t i = 0; i < entry.count; ++i, ++k) {
          got_by_slot[entry.slot].push_back(seen.keys[k]);
          got[seen.keys[k]].assign(values.begin() + k * dim, values.begin() + (k + 1) * dim);
        }
      }
      ASSERT_EQ(k, seen.keys.size());
      if (!sync) continue;
      EXPECT_EQ(seen.params.weight, sync ? 2.0 : 1.0);
      EXPECT_EQ(seen.header.type == wire::FrameType::kDone, seen.entries.empty());
      const bool marked = seen.header.type == wire::FrameType::kDone || (seen.header.flags & wire::kFlagDone);
      marks[{part.server, part.thread}] += marked;
      if (marked) {
        for (uint32_t s = 0; s < slots; ++s) {
          const bool bit = (seen.bitmap[s / 8] & (std::byte{1} << (s % 8))) != std::byte{0};
          EXPECT_EQ(bit, by_slot.count(s) != 0);
        }
      }
      // The new values come back as 10 times the key's sum: every place of the key gets them.
      std::vector<float> reply = values;
      for (float& v : reply) v *= 10;
      ASSERT_EQ(ExpectedBytes(part), seen.values.size());
      Scatter(part, BytesOf(reply));
    }
    EXPECT_EQ(got, sums);
    EXPECT_EQ(got_by_slot, by_slot);
    if (!sync) continue;
    EXPECT_EQ(marks.size(),
              FakeCluster(static_cast<uint32_t>(state.servers.size()), state.servers[0].threads, slots)
                  .Links()
                  .size());
    for (auto& [link, count] : marks) EXPECT_EQ(count, 1);
    for (size_t i = 0; i < n; ++i) {
      for (uint32_t d = 0; d < dim; ++d) ASSERT_EQ(out[i * dim + d], sums[keys[i]][d] * 10);
    }
  }
}

TEST(SparsePartition, PullsPutEveryRowWhereItsKeyStood) {
  BufferPool pool;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const uint32_t slots = 1 + static_cast<uint32_t>(random.Below(40));
    const wire::ClusterState state = StateOf(2, 2, slots, random);
    const wire::TableInfo table{
        TableId{3}, {.name = "e", .kind = TableKind::kSparse, .element = ElementType::kInt64, .dim = 3}, {}};
    std::vector<RowKey> keys(random.Below(500));
    for (RowKey& key : keys) key = random.Below(300);
    std::vector<int64_t> out(keys.size() * 3, -1);
    PartitionInput input{
        .state = &state, .table = &table, .keys = keys, .out = std::as_writable_bytes(std::span(out))};
    Request request = PreparePull(input, pool).value();
    size_t asked = 0;
    for (const ShardPart& part : request.parts) {
      const Seen seen = Read(part, pool);
      ExpectRouted(state, part, seen);
      EXPECT_EQ(seen.header.flags, 0);
      std::vector<int64_t> reply;
      for (uint64_t key : seen.keys) {
        for (int64_t d = 0; d < 3; ++d) reply.push_back(static_cast<int64_t>(key) * 10 + d);
      }
      asked += seen.keys.size();
      Scatter(part, BytesOf(reply));
    }
    EXPECT_EQ(asked, keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      for (int64_t d = 0; d < 3; ++d) ASSERT_EQ(out[i * 3 + d], static_cast<int64_t>(keys[i]) * 10 + d);
    }
  }
}

TEST(DensePartition, EverySlotGetsItsPackedPart) {
  BufferPool pool;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const uint32_t slots = 1 + static_cast<uint32_t>(random.Below(64));
    const wire::ClusterState state = StateOf(2, 2, slots, random);
    const bool sync = random.Chance(0.5);
    const uint64_t size = 1 + random.Below(300'000);
    const wire::TableInfo table{TableId{static_cast<uint32_t>(seed)},
                                {.name = "w", .mode = sync ? Mode::kSync : Mode::kAsync, .size = size},
                                {}};
    std::vector<float> values(size), out(size);
    for (size_t i = 0; i < size; ++i) values[i] = static_cast<float>(i);
    PartitionInput input{.state = &state,
                         .table = &table,
                         .values = std::as_bytes(std::span(values)),
                         .out = std::as_writable_bytes(std::span(out)),
                         .pull_after = sync};
    Request request = (sync ? PrepareRound(input, pool) : PreparePush(input, pool)).value();
    const auto runs = wire::RunsBySlot(wire::DenseLayout::Of(table.id, size, slots));
    std::set<uint32_t> got;
    for (const ShardPart& part : request.parts) {
      const Seen seen = Read(part, pool);
      ExpectRouted(state, part, seen);
      std::vector<float> expected;
      size_t before_last = 0;
      for (const wire::SlotEntry& entry : seen.entries) {
        EXPECT_TRUE(got.insert(entry.slot).second);
        before_last = expected.size() * sizeof(float);
        for (const wire::DenseRun& run : runs[entry.slot]) {
          for (uint64_t i = 0; i < run.count; ++i) expected.push_back(static_cast<float>(run.begin + i));
        }
      }
      EXPECT_LT(before_last, kFrameTargetBytes);
      ASSERT_EQ(Floats(seen.values), expected);
      if (sync) {
        EXPECT_TRUE(part.frame->owned.empty());  // borrowed
        Scatter(part, seen.values);
      }
    }
    for (uint32_t s = 0; s < slots; ++s) EXPECT_EQ(got.count(s) != 0, !runs[s].empty());
    EXPECT_EQ(request.bytes, size * sizeof(float));
    if (sync) {
      EXPECT_EQ(out, values);
    }
  }
}

TEST(Partition, MistakesAreNamed) {
  BufferPool pool;
  const wire::ClusterState state = FakeCluster().state;
  wire::TableInfo dense{TableId{1}, {.name = "w", .size = 7850}, {}};
  wire::TableInfo sparse{TableId{2}, {.name = "e", .kind = TableKind::kSparse, .dim = 4}, {}};
  std::vector<float> values(100);
  PartitionInput input{.state = &state, .table = &dense, .values = std::as_bytes(std::span(values))};
  EXPECT_EQ(PreparePush(input, pool).status(),
            Status(Code::kInvalidArgument,
                   "table \"w\" has 7850 elements, push has 100: give the whole table, or "
                   "make it anew with this size"));
  input.pull_after = true;
  EXPECT_EQ(PreparePush(input, pool).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(PrepareRound(input, pool).status().message(), "table \"w\" is asynchronous: it has no rounds");
  const std::vector<RowKey> keys = {1, 2, 3};
  PartitionInput rows{
      .state = &state, .table = &sparse, .keys = keys, .values = std::as_bytes(std::span(values))};
  EXPECT_EQ(PreparePush(rows, pool).status().message(),
            "table \"e\" has rows of 4 elements: 3 keys need 12, push has 100");
  EXPECT_EQ(PreparePull(rows, pool).status().message(),
            "table \"e\" has rows of 4 elements: 3 keys need 12, pull has 0");
  rows.weight = -1;
  EXPECT_EQ(PreparePush(rows, pool).status().code(), Code::kInvalidArgument);
  sparse.spec.mode = Mode::kSync;
  rows.weight = 1;
  rows.values = {};  // keys without rows are no bare done
  EXPECT_EQ(PrepareRound(rows, pool).status().code(), Code::kInvalidArgument);
}

TEST(Partition, NotFiniteValuesAreNamedAndTheWholePushIsRefused) {
  BufferPool pool;
  const wire::ClusterState state = FakeCluster().state;
  for (const Mode mode : {Mode::kAsync, Mode::kSync}) {
    wire::TableInfo table{TableId{1}, {.name = "w", .mode = mode, .size = 50'000}, {}};
    std::vector<float> values(50'000);
    values[49'999] = std::numeric_limits<float>::infinity();
    values[17] = std::numeric_limits<float>::quiet_NaN();
    PartitionInput input{.state = &state, .table = &table, .values = std::as_bytes(std::span(values))};
    const auto prepare = [&] {
      return mode == Mode::kAsync ? PreparePush(input, pool) : PrepareRound(input, pool);
    };
    EXPECT_EQ(prepare().status().code(), Code::kNotFinite);
    EXPECT_EQ(prepare().status().message(),
              "element 17 of the push to table \"w\" is NaN: nothing was sent; look for the cause in the "
              "gradient, or "
              "create the table with non_finite = allow");
    table.spec.non_finite = NonFinitePolicy::kAllow;
    EXPECT_TRUE(prepare().ok());
  }
  // Finite rows whose sum is not; and a NaN that comes in by a repeated key.
  wire::TableInfo sparse{TableId{2}, {.name = "e", .kind = TableKind::kSparse, .dim = 1}, {}};
  const std::vector<RowKey> keys = {5, 5};
  std::vector<float> rows(2, std::numeric_limits<float>::max());
  PartitionInput input{
      .state = &state, .table = &sparse, .keys = keys, .values = std::as_bytes(std::span(rows))};
  EXPECT_NE(PreparePush(input, pool).status().message().find("sum of their rows is not finite"),
            std::string::npos);
  rows[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(PreparePush(input, pool).status().message().find("element 1 of the push"), std::string::npos);
}

TEST(Finite, AgreesWithTheScalarDefinition) {
  Random random(9);
  for (int i = 0; i < 3000; ++i) {
    std::vector<uint32_t> bits(1 + random.Below(40));
    for (uint32_t& b : bits) {
      b = static_cast<uint32_t>(random.Next());
      if (random.Chance(0.9)) b &= ~0x00800000u;  // mostly finite
    }
    const auto bytes = std::as_bytes(std::span(bits));
    size_t first = bits.size();
    for (size_t k = bits.size(); k-- > 0;) {
      if ((bits[k] & 0x7F800000u) == 0x7F800000u) first = k;
    }
    std::vector<std::byte> copy(bytes.size());
    EXPECT_EQ(CopyFinite(copy.data(), bytes.data(), bytes.size()), first == bits.size());
    EXPECT_EQ(std::memcmp(copy.data(), bytes.data(), bytes.size()), 0);
    EXPECT_EQ(AllFinite(bytes), first == bits.size());
    EXPECT_EQ(FirstNotFinite(bytes), first);
  }
}

TEST(SeenKeys, ForgetsAtEveryStart) {
  SeenKeys seen;
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    const uint32_t count = 1 + static_cast<uint32_t>(random.Below(300));
    seen.Start(count);
    std::map<RowKey, uint32_t> reference;
    std::vector<RowKey> keys(count + 1);
    for (uint32_t i = 0; i < count; ++i) {
      const RowKey key = random.Below(200);
      const uint32_t next = static_cast<uint32_t>(reference.size());
      keys[next] = key;
      EXPECT_EQ(seen.Insert(key, keys.data(), next), reference.try_emplace(key, next).first->second);
    }
  }
}

TEST(DensePlanCache, KeepsItsPlanWhileTheSlotMapIsTheSame) {
  Random random(3);
  wire::ClusterState state = StateOf(2, 2, 16, random);
  const wire::TableInfo table{TableId{1}, {.name = "w", .size = 50'000}, {}};
  DensePlanCache cache;
  const auto plan = cache.Get(table, state);
  wire::ClusterState later = state;
  later.version = state.version.Next();
  later.slots[3].backups = {{static_cast<uint16_t>(1 - state.slots[3].server), 0, false, {}}};
  EXPECT_EQ(cache.Get(table, later), plan);
  EXPECT_EQ(cache.Get(table, state), plan);  // a slower thread
  later.slots[3].thread ^= 1;
  later.version = later.version.Next();
  EXPECT_NE(cache.Get(table, later), plan);
}

}  // namespace
}  // namespace cairn::client
