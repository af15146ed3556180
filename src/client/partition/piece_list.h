// An array of bytes that lies in one or several pieces of the caller's memory, in order. A piece
// without memory (data() null) stands for zeros in what is pushed, and for "not wanted" in what is
// pulled. Refers to the pieces' memory, owns only the list.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>
#include <span>

#include "base/check.h"
#include "base/recycled.h"

namespace cairn::client {

template <class Byte>
class PieceList {
 public:
  PieceList() = default;
  template <class Whole>
    requires std::convertible_to<Whole&&, std::span<Byte>>
  PieceList(Whole&& whole) {  // NOLINT: a contiguous array is one piece
    Add(std::span<Byte>(whole));
  }

  void Add(std::span<Byte> piece) {
    if (piece.empty()) return;
    // Sizes that nobody can have end up as "too large" and not as a small sum.
    constexpr size_t kMost = std::numeric_limits<size_t>::max();
    const size_t end = piece.size() > kMost - bytes() ? kMost : bytes() + piece.size();
    pieces_.push_back(piece);
    ends_.push_back(end);
  }
  void Reserve(size_t pieces) {
    pieces_.reserve(pieces);
    ends_.reserve(pieces);
  }

  bool empty() const { return pieces_.empty(); }
  size_t bytes() const { return ends_.empty() ? 0 : ends_.back(); }
  std::span<const std::span<Byte>> pieces() const { return pieces_; }
  // Requires that there is at most one piece.
  std::span<Byte> whole() const {
    CAIRN_CHECK(pieces_.size() <= 1);
    return pieces_.empty() ? std::span<Byte>() : pieces_[0];
  }

  // use(piece) for the bytes [at, at + bytes), in order. Requires that they are in the array.
  template <class Use>
  void ForEach(size_t at, size_t bytes, Use use) const {
    const auto first = std::upper_bound(ends_.begin(), ends_.end(), at);
    auto i = static_cast<size_t>(first - ends_.begin());
    while (bytes > 0) {
      const size_t begin = ends_[i] - pieces_[i].size();
      const size_t here = std::min(bytes, ends_[i] - at);
      use(Part(pieces_[i], at - begin, here));
      at += here;
      bytes -= here;
      ++i;
    }
  }

 private:
  // Arithmetic on a null pointer is not allowed, not even this.
  static std::span<Byte> Part(std::span<Byte> piece, size_t at, size_t bytes) {
    if (piece.data() == nullptr) return {piece.data(), bytes};
    return piece.subspan(at, bytes);
  }

  RecycledVector<std::span<Byte>> pieces_;
  RecycledVector<size_t> ends_;  // of each piece, within the array
};

}  // namespace cairn::client
