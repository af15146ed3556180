#include "scheduler/rules/durable.h"

#include <algorithm>

#include "base/byte_stream.h"

namespace cairn::scheduler {
namespace {

// "CSR" and the format's version.
constexpr uint32_t kRecordMagic = 0x03525343;
constexpr uint32_t kMagicWithoutEndTold = 0x02525343;  // the format before: read, never written

// Counts and lengths have 32 bits here.
void PutCount(ByteWriter& out, size_t count) { out.Put(static_cast<uint32_t>(count)); }

void PutRanks(ByteWriter& out, const std::set<uint32_t>& ranks) {
  PutCount(out, ranks.size());
  for (uint32_t rank : ranks) out.Put(rank);
}
std::set<uint32_t> GetRanks(ByteReader& in) {
  std::set<uint32_t> ranks;
  for (uint64_t n = in.GetCount<uint32_t>(4); n > 0; --n) ranks.insert(in.Get<uint32_t>());
  return ranks;
}

void PutMoves(ByteWriter& out, const std::map<uint32_t, uint16_t>& moves) {
  PutCount(out, moves.size());
  for (const auto& [slot, from] : moves) {
    out.Put(slot);
    out.Put(from);
  }
}
std::map<uint32_t, uint16_t> GetMoves(ByteReader& in) {
  std::map<uint32_t, uint16_t> moves;
  for (uint64_t n = in.GetCount<uint32_t>(4 + 2); n > 0; --n) {
    const auto slot = in.Get<uint32_t>();
    moves[slot] = in.Get<uint16_t>();
  }
  return moves;
}

constexpr size_t kNodeBytes = 8 + 8 + 1 + 1 + 4 + 8;
constexpr size_t kOperationBytes = 8 + 8 + 4 + 8;

void PutNode(ByteWriter& out, const NodeRecord& node) {
  out.Put(node.uid);
  out.Put(node.incarnation.value);
  out.Put(static_cast<uint8_t>(node.role));
  out.Put(static_cast<uint8_t>(node.fate));
  out.Put(node.rank);
  out.Put(node.barrier_base);
}
NodeRecord GetNode(ByteReader& in) {
  NodeRecord node;
  node.uid = in.Get<uint64_t>();
  node.incarnation = Incarnation(in.Get<uint64_t>());
  node.role = static_cast<wire::Role>(in.Get<uint8_t>());
  node.fate = static_cast<NodeFate>(in.Get<uint8_t>());
  node.rank = in.Get<uint32_t>();
  node.barrier_base = in.Get<uint64_t>();
  return node;
}

Status Damaged(const std::string& what) {
  return {Code::kIo, "a record of the scheduler's log is valid by its checksum, but " + what +
                         ": it comes from another version of cairn, or from a bug in this one"};
}

// What the code relies on beyond the encoding itself.
Status CheckConsistent(const DurableState& d) {
  uint64_t last = 0;
  for (const NodeRecord& node : d.nodes) {
    if (node.incarnation.value <= last || node.incarnation >= d.state.next_incarnation)
      return Damaged("its incarnations are out of order");
    last = node.incarnation.value;
    if (node.role != wire::Role::kServer && node.role != wire::Role::kWorker)
      return Damaged("a node has an unknown role");
    if (node.fate > NodeFate::kRetired) return Damaged("a node has an unknown fate");
  }
  for (const wire::ServerInfo& server : d.state.servers)
    if (!d.FindNode(server.incarnation)) return Damaged("a server never registered");
  for (const wire::WorkerInfo& worker : d.state.workers)
    if (!d.FindNode(worker.incarnation)) return Damaged("a worker never registered");
  if (d.slot_count == 0 || d.slot_count > 65536) return Damaged("its number of slots is out of range");
  if (!d.moving_from.empty() && d.moving_from.rbegin()->first >= d.slot_count)
    return Damaged("a slot that is moved does not exist");
  if (!d.state.slots.empty() && d.state.slots.size() != d.slot_count)
    return Damaged("its map has another number of slots");
  if (d.end_told && !d.over()) return Damaged("everybody knows of its end, and it goes on");
  if (d.state.expected_servers == 0 || d.state.expected_workers == 0) return Damaged("it expects no nodes");
  return Status::Ok();
}

}  // namespace

const NodeRecord* DurableState::FindNode(Incarnation incarnation) const {
  auto it = std::lower_bound(nodes.begin(), nodes.end(), incarnation,
                             [](const NodeRecord& node, Incarnation i) { return node.incarnation < i; });
  return it != nodes.end() && it->incarnation == incarnation ? &*it : nullptr;
}
NodeRecord* DurableState::FindNode(Incarnation incarnation) {
  return const_cast<NodeRecord*>(static_cast<const DurableState*>(this)->FindNode(incarnation));
}

std::vector<std::byte> EncodeRecord(const DurableState& d) {
  ByteWriter out;
  out.Put(kRecordMagic);
  out.PutBytes<uint32_t>(wire::EncodeState(d.state));
  out.Put(d.slot_count);
  out.Put(d.initial_servers);
  out.Put(d.moves_done);
  PutMoves(out, d.moving_from);
  PutCount(out, d.nodes.size());
  for (const NodeRecord& node : d.nodes) PutNode(out, node);
  PutRanks(out, d.joined_ranks);
  PutRanks(out, d.given_up_ranks);
  PutCount(out, d.dropped_names.size());
  for (const std::string& name : d.dropped_names) out.PutBytes<uint32_t>(std::as_bytes(std::span(name)));
  PutCount(out, d.operations.size());
  for (const TableOperation& operation : d.operations) {
    out.Put(operation.incarnation.value);
    out.Put(operation.request);
    out.Put(operation.table.value);
    out.Put(operation.version.value);
  }
  out.Put(static_cast<uint8_t>(d.end_told));
  return out.Take();
}

Result<DurableState> DecodeRecord(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const auto magic = in.Get<uint32_t>();
  if (magic != kRecordMagic && magic != kMagicWithoutEndTold) return Damaged("it does not begin as ours do");
  // The decoder wants aligned memory, which the middle of a record is not.
  auto view = in.GetBytes<uint32_t>();
  if (!in.ok()) return Damaged("it is too short");
  const std::vector<std::byte> state_bytes(view.begin(), view.end());
  auto state = wire::DecodeState(state_bytes);
  if (!state.ok()) return Damaged("its state can't be read (" + state.status().message() + ")");
  DurableState d;
  d.state = std::move(*state);
  d.slot_count = in.Get<uint32_t>();
  d.initial_servers = in.Get<uint32_t>();
  d.moves_done = in.Get<uint64_t>();
  d.moving_from = GetMoves(in);
  for (uint64_t n = in.GetCount<uint32_t>(kNodeBytes); n > 0; --n) d.nodes.push_back(GetNode(in));
  d.joined_ranks = GetRanks(in);
  d.given_up_ranks = GetRanks(in);
  for (uint64_t n = in.GetCount<uint32_t>(4); n > 0; --n) {
    auto name = in.GetBytes<uint32_t>();
    d.dropped_names.emplace_back(reinterpret_cast<const char*>(name.data()), name.size());
  }
  for (uint64_t n = in.GetCount<uint32_t>(kOperationBytes); n > 0; --n) {
    TableOperation operation;
    operation.incarnation = Incarnation(in.Get<uint64_t>());
    operation.request = in.Get<uint64_t>();
    operation.table = TableId(in.Get<uint32_t>());
    operation.version = StateVersion(in.Get<uint64_t>());
    d.operations.push_back(operation);
  }
  if (magic == kRecordMagic) d.end_told = in.Get<uint8_t>() != 0;
  if (!in.ok() || !in.at_end()) return Damaged("its length does not fit its contents");
  if (Status status = CheckConsistent(d); !status.ok()) return status;
  return d;
}

}  // namespace cairn::scheduler
