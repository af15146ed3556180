// For tests of the partition: frames of a request as a shard would read them, and any slot map.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <vector>

#include "base/random.h"
#include "client/partition/partition.h"
#include "client/protocol/fake_cluster.h"
#include "wire/data.h"

namespace cairn::client {

inline wire::ClusterState StateOf(uint32_t servers, uint32_t threads, uint32_t slots, Random& random) {
  wire::ClusterState state = FakeCluster(servers, threads, slots).state;
  for (wire::SlotOwner& owner : state.slots) {  // any map is allowed, not only runs
    owner.server = static_cast<uint16_t>(random.Below(servers));
    owner.thread = static_cast<uint16_t>(random.Below(threads));
  }
  return state;
}

// Frames of a request as a shard would read them.
struct Seen {
  wire::FrameHeader header;
  wire::PushParams params;
  std::vector<wire::SlotEntry> entries;
  std::vector<std::byte> bitmap, mask;
  std::vector<uint64_t> keys;
  std::vector<std::byte> values;
};
inline Seen Read(const ShardPart& part, BufferPool& pool) {
  Buffer flat = wire::Flatten(*part.frame, pool);
  wire::InFrame in = wire::Parse(flat.bytes(), wire::kMaxBodyBytes, pool).value();
  Seen seen;
  seen.header = in.header;
  if (in.header.type == wire::FrameType::kPull) {
    const wire::PullView view = wire::DecodePull(in.header, in.body()).value();
    seen.entries.assign(view.entries.begin(), view.entries.end());
    seen.keys.assign(view.keys.begin(), view.keys.end());
    return seen;
  }
  const wire::PushView view = wire::DecodePush(in.header, in.body()).value();
  seen.params = view.params;
  seen.entries.assign(view.entries.begin(), view.entries.end());
  seen.bitmap.assign(view.done_bitmap.begin(), view.done_bitmap.end());
  seen.mask.assign(view.mask.begin(), view.mask.end());
  seen.keys.assign(view.keys.begin(), view.keys.end());
  seen.values.assign(view.values.begin(), view.values.end());
  return seen;
}

inline std::vector<float> Floats(std::span<const std::byte> bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}
template <class T>
std::vector<std::byte> BytesOf(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

inline void ExpectRouted(const wire::ClusterState& state, const ShardPart& part, const Seen& seen) {
  for (const wire::SlotEntry& entry : seen.entries) {
    EXPECT_EQ(state.slots[entry.slot].server, part.server);
    EXPECT_EQ(state.slots[entry.slot].thread, part.thread);
    EXPECT_GT(entry.count, 0u);
  }
  EXPECT_EQ(seen.header.state_version, state.version.value);
}

}  // namespace cairn::client
