#include "scheduler/rules/memory_room.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <vector>

#include "scheduler/rules/user_text.h"

namespace cairn::scheduler {
namespace {

// A server with less than this left, or than this part of what its tables take, is about to run out.
constexpr uint64_t kScarceBytes = uint64_t{32} << 20;
constexpr uint64_t kScarcePart = 16;

// Servers that share one memory.
struct Group {
  std::vector<uint32_t> servers;
  MemoryLeft left;    // the least that one of them has said
  double copies = 0;  // of every dense table that lie here, 0.5 being half of one
  uint64_t dense_bytes = 0;
};

// How many slots each server is an owner of, those included that are being copied to it.
std::map<uint32_t, uint32_t> SlotsOf(const wire::ClusterState& state) {
  std::map<uint32_t, uint32_t> slots;
  for (const wire::SlotOwner& owner : state.slots) {
    ++slots[owner.server];
    for (const wire::Backup& backup : owner.backups) ++slots[backup.server];
  }
  return slots;
}

std::vector<Group> GroupsOf(const wire::ClusterState& state, std::span<const ServerMemory> servers) {
  const std::map<uint32_t, uint32_t> slots = SlotsOf(state);
  std::map<uint64_t, Group> groups;
  for (const ServerMemory& memory : servers) {
    if (memory.left.kind == MemoryKind::kUnknown) continue;
    const auto owned = slots.find(memory.server);
    Group& group = groups[memory.left.group];
    if (group.servers.empty() || memory.left.bytes < group.left.bytes) group.left = memory.left;
    group.servers.push_back(memory.server);
    group.dense_bytes += memory.dense_bytes;
    if (owned != slots.end())
      group.copies += static_cast<double>(owned->second) / static_cast<double>(state.slots.size());
  }
  std::vector<Group> out;
  out.reserve(groups.size());
  for (auto& [id, group] : groups) out.push_back(std::move(group));
  return out;
}

std::string Arrays(const TableSpec& spec) {
  std::string text = std::to_string(spec.size) + " elements of " +
                     (spec.element == ElementType::kFloat32 ? "4" : "8") + " bytes";
  const uint32_t state = StateColumns(spec.optimizer, spec.optimizer_flags);
  if (state > 0) text += ", " + Count(state, "array") + " of optimizer state";
  if (spec.mode == Mode::kSync) text += ", one of the round's sums";
  return text;
}

}  // namespace

uint32_t DenseArrays(const TableSpec& spec) {
  return 1 + StateColumns(spec.optimizer, spec.optimizer_flags) + (spec.mode == Mode::kSync ? 1 : 0);
}

uint64_t DenseBytes(const TableSpec& spec) {
  if (spec.kind != TableKind::kDense) return 0;
  return spec.size * (spec.element == ElementType::kFloat32 ? 4 : 8) * DenseArrays(spec);
}

Status CheckMemory(const wire::ClusterState& state, const TableSpec& spec,
                   std::span<const ServerMemory> servers) {
  const uint64_t bytes = DenseBytes(spec);
  if (bytes == 0 || state.slots.empty()) return Status::Ok();
  uint64_t before = 0;
  for (const wire::TableInfo& table : state.tables) before += DenseBytes(table.spec);
  for (const Group& group : GroupsOf(state, servers)) {
    const auto here = [&](uint64_t all) {
      return static_cast<uint64_t>(static_cast<double>(all) * group.copies);
    };
    const uint64_t promised = here(before) - std::min(here(before), group.dense_bytes);
    const uint64_t room = group.left.bytes - std::min(group.left.bytes, promised);
    if (here(bytes) <= room) continue;
    return {
        Code::kResourceExhausted,
        "table \"" + Printable(spec.name, 255) + "\" needs " + Bytes(here(bytes)) + " on " +
            Listed("server", group.servers) + ", and there " +
            (group.servers.size() == 1 ? "is " : "is together ") + Bytes(room) + " left (" +
            Words(group.left.kind) +
            (promised > 0 ? "; " + Bytes(promised) + " more is left, but other tables will take it" : "") +
            "): a copy of the table has " + Bytes(bytes) + " (" + Arrays(spec) +
            "), and each partition has " + Count(state.slots.front().backups.size() + 1, "owner") +
            ". Use more servers, servers with more memory, fewer copies (--replicas), or a smaller table"};
  }
  return Status::Ok();
}

std::vector<uint32_t> WithoutRoom(std::span<const ServerMemory> servers, uint64_t bytes) {
  std::vector<uint32_t> full;
  for (const ServerMemory& memory : servers)
    if (memory.left.kind != MemoryKind::kUnknown && memory.left.bytes < bytes) full.push_back(memory.server);
  return full;
}

std::string ProbablyOutOfMemory(const MemoryLeft& left, uint64_t memory_bytes) {
  if (left.kind == MemoryKind::kUnknown || left.bytes >= std::max(kScarceBytes, memory_bytes / kScarcePart))
    return "";
  return ", and had only " + Bytes(left.bytes) + " of memory left in its last report (" + Words(left.kind) +
         "), so it has probably run out of it";
}

std::string Bytes(uint64_t bytes) {
  static constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return std::to_string(bytes) + " bytes";
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %s", value, kUnits[unit]);
  return text;
}

}  // namespace cairn::scheduler
