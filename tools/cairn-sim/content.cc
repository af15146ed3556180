#include "content.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "wire/data.h"

namespace cairn::sim {

namespace {

float RandomFloat(Random& random) {
  return static_cast<float>(static_cast<double>(random.Next() >> 11) * 0x1.0p-52 - 1.0);
}

void FillValues(CallData& data, size_t elements, uint64_t n, Random& random) {
  const bool accounts = data.info.spec.element == ElementType::kInt64;
  data.values.resize(elements * ElementBytes(data.info.spec));
  for (size_t i = 0; i < elements; ++i) {
    if (accounts) {
      const uint64_t value = AccountValue(n, i % kAccountColumns);
      std::memcpy(data.values.data() + i * 8, &value, 8);
    } else {
      const float value = RandomFloat(random);
      std::memcpy(data.values.data() + i * 4, &value, 4);
    }
  }
}

// The values of the frame, for whoever has to look at them in one piece.
Buffer ValuesOf(const wire::Frame& frame, BufferPool& pool) {
  size_t bytes = 0;
  for (auto piece : frame.values) bytes += piece.size();
  Buffer all = pool.Get(bytes);
  std::byte* to = all.data();
  for (auto piece : frame.values) to = std::copy(piece.begin(), piece.end(), to);
  return all;
}

// `into` cut at a number of bytes.
RecycledVector<std::span<std::byte>> CutInto(RecycledVector<std::span<std::byte>>& into, size_t bytes) {
  RecycledVector<std::span<std::byte>> rest;
  size_t at = 0;
  for (auto& piece : into) {
    const size_t keep = std::min(piece.size(), bytes > at ? bytes - at : 0);
    at += piece.size();
    if (keep < piece.size()) rest.push_back(piece.subspan(keep));
    piece = piece.first(keep);
  }
  std::erase_if(into, [](auto piece) { return piece.empty(); });
  return rest;
}

// Splits where the answer's rows go; the first `rows` stay in `part`.
void CutTarget(client::ShardPart& part, client::ShardPart& rest, size_t rows, size_t bytes) {
  rest.out = part.out;
  rest.row_bytes = part.row_bytes;
  if (part.out == nullptr) {
    rest.into = CutInto(part.into, bytes);
    return;
  }
  rest.rows.assign(part.rows.begin() + static_cast<ptrdiff_t>(rows), part.rows.end());
  part.rows.resize(rows);
  RecycledVector<client::ShardPart::Repeat> first;
  for (const auto& repeat : part.repeats) {
    if (repeat.from < rows) {
      first.push_back(repeat);
    } else {
      rest.repeats.push_back({static_cast<uint32_t>(repeat.from - rows), repeat.to});
    }
  }
  part.repeats = std::move(first);
}

}  // namespace

uint64_t AccountValue(uint64_t n, size_t column) {
  switch (column) {
    case 0: return 1;
    case 1: return n;
    case 2: return n * n;
    default: return Mix64(n);
  }
}

void CallData::Poison() {
  std::ranges::fill(keys, 0xDEADDEADDEADDEADull);
  std::ranges::fill(values, std::byte{0xA5});
  std::ranges::fill(out, std::byte{0xA5});
}

void FillPush(CallData& data, const TablePlan& plan, uint64_t n, Random& random) {
  const TableSpec& spec = data.info.spec;
  if (spec.kind == TableKind::kDense) return FillValues(data, spec.size, n, random);
  const auto count = static_cast<size_t>(random.Between(1, 6));
  for (size_t i = 0; i < count; ++i) data.keys.push_back(Mix64(random.Below(plan.keys), spec.dim));
  FillValues(data, count * spec.dim, n, random);
}

void OnGrid(CallData& data) {
  for (size_t i = 0; i < data.values.size() / sizeof(float); ++i) {
    float value;
    std::memcpy(&value, data.values.data() + 4 * i, sizeof(value));
    value = std::nearbyint(value * 64) / 64;
    std::memcpy(data.values.data() + 4 * i, &value, sizeof(value));
  }
}

void FillPull(CallData& data, const TablePlan& plan, Random& random) {
  const TableSpec& spec = data.info.spec;
  if (spec.kind == TableKind::kDense) {
    data.out.resize(spec.size * ElementBytes(spec));
    return;
  }
  const auto count = static_cast<size_t>(random.Between(1, 8));
  for (size_t i = 0; i < count; ++i) data.keys.push_back(Mix64(random.Below(plan.keys + 3), spec.dim));
  data.out.resize(count * spec.dim * ElementBytes(spec));
}

uint8_t PullColumn(const TableSpec& spec, Random& random) {
  if (spec.element != ElementType::kFloat32 || !random.Chance(0.2)) return 0;
  const uint32_t states = StateColumns(spec.optimizer, spec.optimizer_flags);
  if (states == 0 || !random.Chance(0.5)) return kStepColumn;
  return static_cast<uint8_t>(1 + random.Below(states));
}

uint8_t AssignedColumn(const TableSpec& spec, uint64_t n) {
  const uint64_t states = StateColumns(spec.optimizer, spec.optimizer_flags);
  const uint64_t which = n % (4 + states);
  if (spec.element != ElementType::kFloat32 || which < 3) return 0;
  return which == 3 ? kStepColumn : static_cast<uint8_t>(which - 3);
}

void FillMask(CallData& data, const TablePlan& plan, Random& random) {
  const TableSpec& spec = data.info.spec;
  if (!random.Chance(plan.masks)) return;
  const size_t segments = std::max<size_t>(1, spec.segments.size());
  data.mask.resize((segments + 7) / 8);
  const bool garbage = random.Chance(0.5);
  for (size_t s = 0; s < segments; ++s) {
    if (random.Chance(0.6)) {
      data.mask[s / 8] |= std::byte{1} << (s % 8);
    } else if (garbage) {
      const uint64_t begin = s == 0 ? 0 : spec.segments[s - 1];
      const uint64_t end = spec.segments.empty() ? spec.size : spec.segments[s];
      std::fill(data.values.begin() + static_cast<ptrdiff_t>(4 * begin),
                data.values.begin() + static_cast<ptrdiff_t>(4 * end), std::byte{0xFF});  // NaN
    }
  }
}

client::PieceList<const std::byte> InPieces(const std::vector<std::byte>& array, const CallData& data,
                                            const TablePlan& plan, Random& random) {
  if (array.empty() || !random.Chance(plan.pieces)) return std::span<const std::byte>(array);
  const size_t element = ElementBytes(data.info.spec);
  client::PieceList<const std::byte> pieces;
  const std::span<const std::byte> all(array);
  for (size_t at = 0; at < all.size();) {
    const size_t bytes = element * (1 + random.Below((all.size() - at) / element));
    const bool missing = random.Chance(0.1);
    pieces.Add(missing ? std::span<const std::byte>(static_cast<const std::byte*>(nullptr), bytes)
                       : all.subspan(at, bytes));
    at += bytes;
  }
  return pieces;
}

bool PokeNan(client::Request& request, Random& random) {
  std::vector<client::ShardPart*> able;
  for (auto& part : request.parts) {
    if (!part.frame->values.empty() && !part.frame->values[0].empty()) able.push_back(&part);
  }
  if (able.empty()) return false;
  wire::Frame& frame = *able[random.Below(able.size())]->frame;
  const auto piece = frame.values[random.Below(frame.values.size())];
  const float nan = std::bit_cast<float>(uint32_t{0x7FC00000});
  std::memcpy(const_cast<std::byte*>(piece.data()) + 4 * random.Below(piece.size() / 4), &nan, 4);
  wire::Seal(frame);
  return true;
}

void CutFrames(client::Request& request, const TableSpec& spec, double chance, Random& random,
               BufferPool& pool) {
  RecycledVector<client::ShardPart> parts;
  const size_t unit = ElementBytes(spec) * (spec.kind == TableKind::kSparse ? spec.dim : 1);
  for (client::ShardPart& part : request.parts) {
    const wire::FrameHeader header = part.frame->header();
    const bool able = header.type == wire::FrameType::kPush || header.type == wire::FrameType::kContribute;
    if (!able || header.entry_count < 2 || !random.Chance(chance)) {
      parts.push_back(std::move(part));
      continue;
    }
    const Buffer flat = wire::Flatten(*part.frame, pool);
    const auto view = wire::DecodePush(header, flat.bytes().subspan(sizeof(header)));
    const size_t cut = 1 + random.Below(header.entry_count - 1);
    size_t units = 0;
    for (size_t i = 0; i < cut; ++i) units += view->entries[i].count;
    const bool sparse = header.key_count > 0;
    Buffer values = ValuesOf(*part.frame, pool);
    client::ShardPart rest{.server = part.server, .thread = part.thread};
    CutTarget(part, rest, units, units * unit);
    auto encode = [&](std::span<const wire::SlotEntry> entries, std::span<const uint64_t> keys,
                      std::span<const std::byte> piece, bool last) {
      wire::DataParts made;
      made.type = header.type;
      made.flags = last ? header.flags : static_cast<uint16_t>(header.flags & ~wire::kFlagDone);
      made.state_version = StateVersion(header.state_version);
      made.table = TableId(header.table);
      made.params = &view->params;
      made.entries = entries;
      if (last) made.done_bitmap = view->done_bitmap;
      made.mask = view->mask;
      made.keys = keys;
      made.owned = pool.Get(piece.size());
      std::copy(piece.begin(), piece.end(), made.owned.data());
      made.coding = part.frame->coding;
      return wire::EncodeData(std::move(made), pool);
    };
    part.borrowed = false;  // each has a copy
    part.frame = encode(view->entries.first(cut), sparse ? view->keys.first(units) : view->keys,
                        values.bytes().first(units * unit), false);
    rest.frame = encode(view->entries.subspan(cut), sparse ? view->keys.subspan(units) : view->keys,
                        values.bytes().subspan(units * unit), true);
    parts.push_back(std::move(part));
    parts.push_back(std::move(rest));
  }
  request.parts = std::move(parts);
}

}  // namespace cairn::sim
