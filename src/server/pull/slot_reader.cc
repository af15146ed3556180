#include "server/pull/slot_reader.h"

#include <utility>

#include "base/planted.h"
#include "server/slots/refusal_texts.h"
#include "wire/coding.h"

namespace cairn::server {
namespace {
// Below this a slot's values are quicker copied than written on their own.
constexpr size_t kInPlaceBytes = 2048;
}  // namespace

wire::DataParts RoundReply(const TableState& table, const wire::FrameHeader& request, StateVersion version) {
  wire::DataParts parts;
  parts.type = wire::FrameType::kRoundReply;
  parts.request_id = request.request_id;
  parts.incarnation = Incarnation{request.incarnation};
  parts.state_version = version;
  parts.round = Round{request.round};
  parts.table = table.info.id;
  // Only gradients are mostly zeros.
  const WireFormat format = table.info.spec.wire;
  if (format != WireFormat::kTopK) parts.coding = wire::CodingOf(format);
  return parts;
}

Status SlotReader::Check(const wire::FrameHeader& request, const TableState& table, const Reading& reading,
                         uint64_t* bytes) const {
  const TableSpec& spec = table.info.spec;
  if (Status s = CheckPullShape(spec, reading.entries, reading.keys); !s.ok()) return s;
  const bool when_assigned =
      request.type == wire::FrameType::kPull && (request.flags & wire::kFlagAssigned) != 0;
  if (when_assigned && table.sparse()) {
    return {Code::kInvalidArgument,
            "table \"" + spec.name + "\" is sparse, only dense tables are assigned: pull without waiting"};
  }
  size_t key_at = 0;
  for (const wire::SlotEntry& entry : reading.entries) {
    const table::SlotTable& rows = *table.rows[slots_.LocalOf(entry.slot)];
    const size_t count = table.sparse() ? entry.count : 0;
    if (Status s = rows.CheckRead(reading.keys.subspan(key_at, count), reading.column); !s.ok()) return s;
    if (when_assigned && !rows.assigned() && !CAIRN_BUG(kUnassignedRead)) {
      return {Code::kUnavailable, "table \"" + spec.name + "\" has no values yet in slot " +
                                      std::to_string(entry.slot) + ": no worker has assigned them"};
    }
    *bytes += rows.ReadBytes(count, reading.column);
    key_at += count;
  }
  const uint64_t most = context_.options().most_value_bytes;
  if (*bytes <= most) return Status::Ok();
  if (reading.column == kKeyColumn) {
    return {Code::kInvalidArgument,
            "table \"" + spec.name + "\": the keys of " + std::to_string(*bytes / sizeof(RowKey)) +
                " rows are more than an answer holds, which is " + std::to_string(most / sizeof(RowKey)) +
                ": ask for those of fewer slots at a time"};
  }
  return {Code::kInvalidArgument, "table \"" + spec.name + "\": an answer of " + std::to_string(*bytes) +
                                      " bytes is above the limit of " + std::to_string(most) +
                                      ": pull fewer rows at a time"};
}

void SlotReader::Send(ConnId conn, const wire::FrameHeader& request, TableState& table,
                      const Reading& reading) {
  const bool sparse = table.sparse();
  uint64_t bytes = 0;
  if (Status problem = Check(request, table, reading, &bytes); !problem.ok())
    return outbox_.SendError(conn, request, problem);

  // A dense table's values are sent from where they lie.
  const bool in_place = !sparse && reading.column == 0 && !wire::Rounds(table.info.spec.wire) &&
                        bytes >= kInPlaceBytes * reading.entries.size();
  wire::Pieces pieces;
  Buffer values = context_.pool().Get(in_place ? 0 : bytes);
  std::byte* out = values.data();
  entries_.clear();
  size_t key_at = 0;
  for (const wire::SlotEntry& entry : reading.entries) {
    const uint32_t local = slots_.LocalOf(entry.slot);
    table::SlotTable& rows = *table.rows[local];
    const auto part = reading.keys.subspan(key_at, sparse ? entry.count : 0);
    if (CAIRN_BUG(kPullCreatesRow) && sparse) {
      const std::vector<std::byte> zeros(part.size() * UnitBytes(table.info.spec));
      rows.Apply(part, zeros, {}, Hyper{0, 0});
    }
    slots_[local].work.Pull(part.size(), rows.ReadBytes(part.size(), reading.column));
    table.hot.Note(part);
    if (in_place) {
      pieces.push_back(rows.View(reading.column));
    } else {
      rows.Read(part, reading.column, out);
      out += rows.ReadBytes(part.size(), reading.column);
    }
    key_at += part.size();
    const bool all = !sparse || reading.column == kKeyColumn;
    const uint32_t count = all ? static_cast<uint32_t>(rows.rows()) : entry.count;
    entries_.push_back({entry.slot, count, slots_[local].position().packed});
  }
  if (reading.column == 0 && !in_place) {
    (void)wire::RoundValues(table.info.spec.wire, wire::TooLarge::kLargest, values.bytes());
  }
  wire::DataParts parts = RoundReply(table, request, context_.version());
  if (request.type == wire::FrameType::kPull) parts.type = wire::FrameType::kPullReply;
  if (reading.clock) parts.round = *reading.clock;
  parts.flags = (request.flags & wire::kFlagValuesChecked) | reading.reply_flags;  // as the asker does it
  parts.entries = entries_;
  parts.owned = std::move(values);
  parts.values = std::move(pieces);
  parts.transient = in_place;
  gate_.Send(conn, wire::EncodeData(std::move(parts), context_.pool()), reading.entries, reading.every_slot);
}

}  // namespace cairn::server
