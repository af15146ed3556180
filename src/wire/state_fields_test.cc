// Every scalar that a state has, changed one at a time: differences and whole states carry each of
// them. A field that is added to one of the structs does not compile here until it is named in
// Fields(), and from then on is one of those that are changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "wire/control.h"
#include "wire/state_delta.h"

namespace cairn::wire {
namespace {

auto Fields(Endpoint& s) {
  auto& [host, port] = s;
  return std::tie(host, port);
}
auto Fields(ServerInfo& s) {
  auto& [index, incarnation, endpoint, threads, leaving] = s;
  return std::tie(index, incarnation, endpoint, threads, leaving);
}
auto Fields(WorkerInfo& s) {
  auto& [rank, incarnation, join_view, endpoint] = s;
  return std::tie(rank, incarnation, join_view, endpoint);
}
auto Fields(Backup& s) {
  auto& [server, thread, in_sync, added] = s;
  return std::tie(server, thread, in_sync, added);
}
auto Fields(SlotOwner& s) {
  auto& [server, thread, epoch, since, heir, backups] = s;
  return std::tie(server, thread, epoch, since, heir, backups);
}
auto Fields(Init& s) {
  auto& [kind, a, b, seed, stream] = s;
  return std::tie(kind, a, b, seed, stream);
}
auto Fields(TableSpec& s) {
  auto& [name, kind, element, mode, optimizer, non_finite, deterministic, size, dim, init, flags, initial,
         segments, wire, wire_topk, storage, staleness] = s;
  return std::tie(name, kind, element, mode, optimizer, non_finite, deterministic, size, dim, init, flags,
                  initial, segments, wire, wire_topk, storage, staleness);
}
auto Fields(TableInfo& s) {
  auto& [id, spec, created_view] = s;
  return std::tie(id, spec, created_view);
}
auto Fields(TableRound& s) {
  auto& [table, round] = s;
  return std::tie(table, round);
}
auto Fields(View& s) {
  auto& [number, starts] = s;
  return std::tie(number, starts);
}
auto Fields(ClusterState& s) {
  auto& [cluster_id, term, version, phase, failure, expected_servers, expected_workers, servers, slots,
         workers, next_incarnation, view, pending_view, views, tables, next_table, done_ranks, replicas,
         min_in_sync, failovers] = s;
  return std::tie(cluster_id, term, version, phase, failure, expected_servers, expected_workers, servers,
                  slots, workers, next_incarnation, view, pending_view, views, tables, next_table, done_ranks,
                  replicas, min_in_sync, failovers);
}

void Vary(std::string& text) { text += "x"; }
void Vary(bool& flag) { flag = !flag; }
template <class Tag, class Rep>
void Vary(StrongId<Tag, Rep>& id) {
  id = id.Next();
}
template <class Number>
  requires std::is_arithmetic_v<Number> || std::is_enum_v<Number>
void Vary(Number& number) {
  if constexpr (std::is_enum_v<Number>)
    number = static_cast<Number>(static_cast<std::underlying_type_t<Number>>(number) + 1);
  else
    number += 1;
}

// Calls visit(path, change) for every scalar; of a list, for those of its last item. A path is made of
// the fields' places: "7.2" is the third field of a server.
using Visit = std::function<void(const std::string& path, const std::function<void()>& change)>;
template <class Value>
void EachScalar(Value& value, const std::string& path, const Visit& visit) {
  if constexpr (requires { Vary(value); }) {
    visit(path, [&value] { Vary(value); });
  } else if constexpr (requires { value.back(); }) {
    ASSERT_FALSE(value.empty()) << "the state below has none of field " << path;
    EachScalar(value.back(), path, visit);
  } else {
    std::apply(
        [&](auto&... field) {
          size_t place = 0;
          (EachScalar(field, path + (path.empty() ? "" : ".") + std::to_string(place++), visit), ...);
        },
        Fields(value));
  }
}

// One in which each change of a single field leaves a state that can be.
ClusterState Full() {
  ClusterState state;
  state.cluster_id = "full";
  state.term = Term{3};
  state.version = StateVersion{41};
  state.phase = Phase::kRunning;
  state.expected_servers = 6;
  state.expected_workers = 2;
  for (uint32_t i = 0; i < 7; ++i) state.servers.push_back({i, Incarnation{i + 1}, {"s", 7}, 4, false});
  for (int i = 0; i < 3; ++i)
    state.slots.push_back(
        {0, 1, 5, StateVersion{6}, 2, {{2, 0, true, StateVersion{8}}, {4, 1, true, StateVersion{9}}}});
  for (uint32_t r = 0; r < 2; ++r)
    state.workers.push_back({Rank{r}, Incarnation{20 + r}, ViewNumber{2}, {"w", 9}});
  state.next_incarnation = Incarnation{30};
  state.view = ViewNumber{4};
  state.pending_view = ViewNumber{5};
  state.views = {{ViewNumber{2}, {{TableId{1}, Round{3}}}}, {ViewNumber{4}, {{TableId{1}, Round{7}}}}};
  state.tables = {{TableId{1}, {}, ViewNumber{1}}, {TableId{2}, {}, ViewNumber{2}}};
  state.tables.back().spec.name = "t";
  state.tables.back().spec.size = 100;
  state.tables.back().spec.segments = {40, 100};
  state.next_table = TableId{4};
  state.done_ranks = {0, 1};
  state.replicas = 3;
  state.min_in_sync = 2;
  return state;
}

// What a change of one field asks of another one.
void MakeWhole(ClusterState& state, const ClusterState& base) {
  if (state.version == base.version) state.version = state.version.Next();
  SlotOwner& slot = state.slots.back();
  if (slot.heir != base.slots.back().heir) slot.heir = 4;  // it is one of the backups
  TableSpec& spec = state.tables.back().spec;
  spec.size = spec.segments.back() = std::max(spec.size, spec.segments.back());
}

ControlMessage OverTheWire(const ControlMessage& message) {
  BufferPool pool;
  auto in = Parse(Flatten(*EncodeControl(message, pool), pool).bytes(), kMaxBodyBytes, pool);
  EXPECT_TRUE(in.ok());
  auto decoded = DecodeControl(in->header, in->body());
  EXPECT_TRUE(decoded.ok()) << decoded.status().ToString();
  return decoded.ok() ? std::move(*decoded) : ControlMessage();
}

TEST(StateFields, EachScalarAloneGetsThere) {
  const ClusterState base = Full();
  // The scalar with this number, changed.
  size_t count = 0;
  const auto with = [&](size_t chosen, std::string* path_of) {
    ClusterState state = base;
    count = 0;
    EachScalar(state, "", [&](const std::string& path, const std::function<void()>& change) {
      if (count++ != chosen) return;
      *path_of = path;
      change();
    });
    return state;
  };
  std::string path;
  ASSERT_EQ(with(SIZE_MAX, &path), base);
  EXPECT_GT(count, 50u);
  for (size_t i = 0; i < count; ++i) {
    ClusterState now = with(i, &path);
    SCOPED_TRACE("field " + path);
    EXPECT_NE(now, base);
    MakeWhole(now, base);
    const ControlMessage whole = OverTheWire(StateMessage{now});
    ASSERT_TRUE(std::holds_alternative<StateMessage>(whole));
    EXPECT_EQ(std::get<StateMessage>(whole).state, now);
    if (now.cluster_id != base.cluster_id) continue;  // no difference leads from one cluster to another
    const ControlMessage delta = OverTheWire(Difference(base, now));
    ASSERT_TRUE(std::holds_alternative<StateDelta>(delta));
    auto applied = Apply(base, std::get<StateDelta>(delta));
    ASSERT_TRUE(applied.ok()) << applied.status().ToString();
    EXPECT_EQ(*applied, now);
  }
}

}  // namespace
}  // namespace cairn::wire
