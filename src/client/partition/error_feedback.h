// Top-k with error feedback (WireFormat::kTopK): of each gradient the largest elements are sent, and
// what is not is added to the next one. docs/decisions/0021-less-on-the-wire.md has the rules.
// Thread-safe: one push of the table at a time, from the choice until its rest is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "cairn/types.h"
#include "client/partition/piece_list.h"

namespace cairn::client {

class ErrorFeedback {
 public:
  // Null for tables with another format.
  static std::shared_ptr<ErrorFeedback> For(const TableSpec& spec);

  // What is to be sent of one gradient. While it lives, it holds the mutex of its ErrorFeedback, which
  // moves with it: the analysis can't follow that, so who has one says so (AssertHeld).
  class Chosen {
   public:
    Chosen() = default;  // nothing was chosen
    Chosen(Chosen&& other) noexcept : feedback_(std::exchange(other.feedback_, nullptr)) {}
    Chosen& operator=(Chosen&&) = delete;
    ~Chosen() { Release(); }
    explicit operator bool() const { return feedback_ != nullptr; }
    // The whole table: 0 where nothing is sent. Valid while this lives.
    std::span<const std::byte> values() const;
    // The push is on its way: the rest is for the next one. Without it nothing has happened.
    void KeepRest();

   private:
    friend class ErrorFeedback;
    explicit Chosen(ErrorFeedback& feedback) CAIRN_NO_THREAD_SAFETY_ANALYSIS : feedback_(&feedback) {
      feedback.mutex_.Lock();
    }
    void Release() CAIRN_NO_THREAD_SAFETY_ANALYSIS {
      if (feedback_ != nullptr) std::exchange(feedback_, nullptr)->mutex_.Unlock();
    }
    ErrorFeedback* feedback_ = nullptr;
  };
  // `mask` as in PushOptions; segments that it leaves out keep their rest. Nothing is chosen where
  // the gradient is not finite, or has another shape than the table: it is for others to refuse.
  Chosen Choose(const PieceList<const std::byte>& gradient, std::span<const std::byte> mask,
                double value_scale);

 private:
  explicit ErrorFeedback(const TableSpec& spec);
  // Gradient and rest of the elements [begin, end) into next_; false if one is not finite.
  bool Add(const PieceList<const std::byte>& gradient, uint64_t begin, uint64_t end, float per_value)
      CAIRN_REQUIRES(mutex_);
  // Moves the largest of next_[begin, end) to sent_.
  void Split(uint64_t begin, uint64_t end) CAIRN_REQUIRES(mutex_);

  const std::vector<uint64_t> ends_;  // of the segments
  const float fraction_;
  Mutex mutex_;
  std::vector<float> rest_ CAIRN_GUARDED_BY(mutex_);  // of the gradient itself, whatever it was scaled by
  std::vector<float> sent_ CAIRN_GUARDED_BY(mutex_);  // of the push under way
  std::vector<float> next_ CAIRN_GUARDED_BY(mutex_);  // rest_ after it
};

// The k-th largest magnitude of `values`, as bits. Requires 1 ≤ k ≤ values.size(), all finite.
uint32_t LargestMagnitude(std::span<const float> values, size_t k);

}  // namespace cairn::client
