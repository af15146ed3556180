// Different numbers get different types, so that the compiler catches a swap.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/check.h"

namespace cairn {

template <class Tag, class Rep>
struct StrongId {
  using rep = Rep;
  Rep value{};
  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep v) : value(v) {}
  constexpr auto operator<=>(const StrongId&) const = default;
  constexpr StrongId Next() const { return StrongId(static_cast<Rep>(value + 1)); }
};

using TableId = StrongId<struct TableIdTag, uint32_t>;  // never reused; 0 is none
using SlotId = StrongId<struct SlotIdTag, uint32_t>;
using Incarnation = StrongId<struct IncarnationTag, uint64_t>;  // one start of one node; 0 is none
using Round = StrongId<struct RoundTag, uint64_t>;
using Seq = StrongId<struct SeqTag, uint64_t>;  // a client's push number in a slot, from 1
using StateVersion = StrongId<struct StateVersionTag, uint64_t>;
using ViewNumber = StrongId<struct ViewNumberTag, uint64_t>;
using Term = StrongId<struct TermTag, uint64_t>;
using Rank = StrongId<struct RankTag, uint32_t>;
using ConnId = StrongId<struct ConnIdTag, uint64_t>;  // a connection, never reused in a process

// In the place of a column of a sparse table: the keys of a slot's rows (SparseTable::Keys).
inline constexpr uint8_t kKeyColumn = 14;

// (epoch, index) of an operation in a slot's order, packed so that it compares as one number.
struct Position {
  static constexpr int kIndexBits = 40;
  // A million operations a second for twelve days. A primary says so and stops well before it
  // (server/shard/slot_roles.cc): a position that began again at 0 would look older than all others.
  static constexpr uint64_t kMaxIndex = (uint64_t{1} << kIndexBits) - 1;
  static constexpr uint64_t kMaxEpoch = (uint64_t{1} << (64 - kIndexBits)) - 1;
  uint64_t packed = 0;
  static constexpr Position Of(uint64_t epoch, uint64_t index) {
    CAIRN_CHECK(index <= kMaxIndex && epoch <= kMaxEpoch);
    return Position{(epoch << kIndexBits) | index};
  }
  constexpr uint64_t epoch() const { return packed >> kIndexBits; }
  constexpr uint64_t index() const { return packed & ((uint64_t{1} << kIndexBits) - 1); }
  constexpr auto operator<=>(const Position&) const = default;
};

}  // namespace cairn

template <class Tag, class Rep>
struct std::hash<cairn::StrongId<Tag, Rep>> {
  size_t operator()(cairn::StrongId<Tag, Rep> id) const {
    return static_cast<size_t>(id.value * 0x9E3779B97F4A7C15ull);
  }
};
