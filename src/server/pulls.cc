// Reads (docs/consistency.md, rule 22): values of many slots into one pooled buffer, each slot's
// part with its position. A pull never changes anything.
#include <algorithm>
#include <vector>

#include "base/planted.h"
#include "server/shard_impl.h"

namespace cairn::server {
namespace {

// Room for header and entries beside the values.
constexpr uint64_t kMostValueBytes = wire::kMaxBodyBytes - (uint64_t{2} << 20);

}  // namespace

void ShardImpl::OnPull(const Request& request) {
  const wire::FrameHeader& header = request.header();
  Result<wire::PullView> pull = wire::DecodePull(header, request.frame.body());
  if (!pull.ok()) return Violation(request.conn, header, pull.status());
  if (Status s = CheckOwner(request, pull->entries); !s.ok()) return SendError(request.conn, header, s);
  TableState* table = nullptr;
  if (Status s = FindTable(request, &table); !s.ok()) return SendError(request.conn, header, s);
  if (table == nullptr) return SendError(request.conn, header, DroppedTable(request.table()));
  ++stats_.pulls;
  if (!request.has(wire::kFlagSyncPull)) {
    return SendValues(request.conn, header, wire::FrameType::kPullReply, *table, pull->entries, pull->keys);
  }
  if (!table->sync()) return SendError(request.conn, header, WrongMode(table->info.spec, "a sync pull"));
  if (Status s = CheckPullShape(table->info.spec, pull->entries, pull->keys); !s.ok())
    return SendError(request.conn, header, s);
  // A worker asks for the round after its last one, or for its first.
  if (request.round() > std::max(table->highest_open.Next(), table->latest_start)) {
    return SendError(request.conn, header,
                     {Code::kInvalidArgument, "table \"" + table->info.spec.name + "\": round " +
                                                  std::to_string(request.round().value) +
                                                  " is far ahead, the open one is " +
                                                  std::to_string(table->highest_open.value)});
  }
  if (parked_.Adopt(header, request.conn) != nullptr) return;
  if (!parked_.HasRoom(request.incarnation(), request.frame.storage.capacity())) {
    return SendError(request.conn, header, {Code::kResourceExhausted, "too many requests wait for a round"});
  }
  ParkedRequest waits;
  waits.conn = request.conn;
  waits.header = header;
  waits.needed = request.round();
  waits.entries = pull->entries;
  waits.keys = pull->keys;
  waits.storage = std::move(request.frame.storage);
  waits.told_us = request.now_us;
  AdvanceParked(*table, parked_.Add(std::move(waits)));
}

void ShardImpl::SendValues(ConnId conn, const wire::FrameHeader& request, wire::FrameType type,
                           TableState& table, std::span<const wire::SlotEntry> entries,
                           std::span<const RowKey> keys) {
  const bool sparse = table.sparse();
  Status problem = CheckPullShape(table.info.spec, entries, keys);
  uint64_t bytes = 0;
  size_t key_at = 0;
  for (size_t i = 0; i < entries.size() && problem.ok(); ++i) {
    const table::SlotTable& rows = *table.rows[slots_.LocalOf(entries[i].slot)];
    const size_t count = sparse ? entries[i].count : 0;
    problem = rows.CheckKeys(keys.subspan(key_at, count));
    bytes += rows.ReadBytes(count);
    key_at += count;
  }
  if (problem.ok() && bytes > kMostValueBytes) {
    problem = {Code::kInvalidArgument, "table \"" + table.info.spec.name + "\": an answer of " +
                                           std::to_string(bytes) + " bytes is above the limit of " +
                                           std::to_string(kMostValueBytes) + ": pull fewer rows at a time"};
  }
  if (!problem.ok()) return SendError(conn, request, problem);

  Buffer values = pool_.Get(bytes);
  std::byte* out = values.data();
  reply_entries_.clear();
  key_at = 0;
  for (const wire::SlotEntry& entry : entries) {
    const uint32_t local = slots_.LocalOf(entry.slot);
    table::SlotTable& rows = *table.rows[local];
    const auto part = keys.subspan(key_at, sparse ? entry.count : 0);
    if (CAIRN_BUG(kPullCreatesRow) && sparse) {
      const std::vector<std::byte> zeros(part.size() * UnitBytes(table.info.spec));
      rows.Apply(part, zeros, Hyper{0, 0});
    }
    rows.Read(part, out);
    out += rows.ReadBytes(part.size());
    key_at += part.size();
    const uint32_t count = sparse ? entry.count : static_cast<uint32_t>(rows.rows());
    reply_entries_.push_back({entry.slot, count, slots_[local].position().packed});
  }
  wire::DataParts parts;
  parts.type = type;
  parts.flags = request.flags & wire::kFlagValuesChecked;  // as the asker does it
  parts.request_id = request.request_id;
  parts.incarnation = Incarnation{request.incarnation};
  parts.state_version = version();
  parts.round = Round{request.round};
  parts.table = table.info.id;
  parts.entries = reply_entries_;
  parts.owned = std::move(values);
  Send(conn, wire::EncodeData(std::move(parts), pool_));
}

}  // namespace cairn::server
