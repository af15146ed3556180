// Top-k with error feedback (WireFormat::kTopK): of each gradient the largest elements are sent, and
// what is not is added to the next one. docs/decisions/0021-less-on-the-wire.md has the rules.
// Thread-safe: one push of the table at a time, from the choice until its rest is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "cairn/types.h"
#include "client/partition/piece_list.h"

namespace cairn::client {

class ErrorFeedback {
 public:
  // Null for tables with another format.
  static std::shared_ptr<ErrorFeedback> For(const TableSpec& spec);

  // What is to be sent of one gradient. Holds the table's lock while it lives.
  class Chosen {
   public:
    Chosen() = default;  // nothing was chosen
    explicit operator bool() const { return feedback_ != nullptr; }
    // The whole table: 0 where nothing is sent. Valid while this lives.
    std::span<const std::byte> values() const;
    // The push is on its way: the rest is for the next one. Without it nothing has happened.
    void KeepRest();

   private:
    friend class ErrorFeedback;
    Chosen(ErrorFeedback* feedback, std::unique_lock<std::mutex> lock)
        : feedback_(feedback), lock_(std::move(lock)) {}
    ErrorFeedback* feedback_ = nullptr;
    std::unique_lock<std::mutex> lock_;
  };
  // `mask` as in PushOptions; segments that it leaves out keep their rest. Nothing is chosen where
  // the gradient is not finite, or has another shape than the table: it is for others to refuse.
  Chosen Choose(const PieceList<const std::byte>& gradient, std::span<const std::byte> mask,
                double value_scale);

 private:
  explicit ErrorFeedback(const TableSpec& spec);
  // Gradient and rest of the elements [begin, end) into next_; false if one is not finite.
  bool Add(const PieceList<const std::byte>& gradient, uint64_t begin, uint64_t end, float per_value);
  // Moves the largest of next_[begin, end) to sent_.
  void Split(uint64_t begin, uint64_t end);

  const std::vector<uint64_t> ends_;  // of the segments
  const float fraction_;
  std::mutex mutex_;         // guards what follows
  std::vector<float> rest_;  // of the gradient itself, whatever it was scaled by
  std::vector<float> sent_;  // of the push under way
  std::vector<float> next_;  // rest_ after it
};

// The k-th largest magnitude of `values`, as bits. Requires 1 ≤ k ≤ values.size(), all finite.
uint32_t LargestMagnitude(std::span<const float> values, size_t k);

}  // namespace cairn::client
