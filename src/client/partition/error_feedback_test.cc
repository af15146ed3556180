// Top-k: what is chosen, that nothing is lost but on purpose, and that a push that was not taken over
// changes nothing.
#include "client/partition/error_feedback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"

namespace cairn::client {
namespace {

TableSpec Spec(uint64_t size, float fraction, std::vector<uint64_t> segments = {}) {
  TableSpec spec;
  spec.size = size;
  spec.segments = std::move(segments);
  spec.wire = WireFormat::kTopK;
  spec.wire_topk = fraction;
  return spec;
}

std::vector<float> SentOf(const ErrorFeedback::Chosen& chosen) {
  std::vector<float> sent(chosen.values().size() / sizeof(float));
  std::memcpy(sent.data(), chosen.values().data(), chosen.values().size());
  return sent;
}

PieceList<const std::byte> Pieces(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<float> Push(ErrorFeedback& feedback, const std::vector<float>& gradient,
                        std::span<const std::byte> mask = {}, double value_scale = 1.0) {
  ErrorFeedback::Chosen chosen = feedback.Choose(Pieces(gradient), mask, value_scale);
  EXPECT_TRUE(chosen);
  const std::vector<float> sent = SentOf(chosen);
  chosen.KeepRest();
  return sent;
}

TEST(LargestMagnitude, IsThatOfASortedArray) {
  Random random(3);
  for (int i = 0; i < 300; ++i) {
    std::vector<float> values(1 + random.Below(3000));
    for (float& value : values) {
      value = std::bit_cast<float>(static_cast<uint32_t>(random.Next()));
      if (!std::isfinite(value) || random.Chance(0.3)) value = static_cast<float>(random.Below(4));
    }
    std::vector<float> sorted = values;
    std::sort(sorted.begin(), sorted.end(), [](float a, float b) { return std::abs(a) > std::abs(b); });
    const size_t k = 1 + random.Below(values.size());
    EXPECT_EQ(LargestMagnitude(values, k), std::bit_cast<uint32_t>(std::abs(sorted[k - 1])));
  }
}

TEST(ErrorFeedback, OnlyForTopK) {
  TableSpec spec = Spec(10, 0.5f);
  EXPECT_NE(ErrorFeedback::For(spec), nullptr);
  spec.wire = WireFormat::kBfloat16;
  EXPECT_EQ(ErrorFeedback::For(spec), nullptr);
}

TEST(ErrorFeedback, TheLargestGoFirstTheRestComesLater) {
  const auto feedback = ErrorFeedback::For(Spec(5, 0.4f));
  EXPECT_EQ(Push(*feedback, {1, -5, 2, 3, -3}),
            (std::vector<float>{0, -5, 0, 3, 0}));  // of equal ones the first
  EXPECT_EQ(Push(*feedback, {0, 0, 0, 0, 0}), (std::vector<float>{0, 0, 2, 0, -3}));
  EXPECT_EQ(Push(*feedback, {0, 1, 0, 0, 0}), (std::vector<float>{1, 1, 0, 0, 0}));
  EXPECT_EQ(Push(*feedback, {0, 0, 0, 0, 0}), (std::vector<float>{0, 0, 0, 0, 0}));
}

TEST(ErrorFeedback, NothingIsLost) {
  Random random(5);
  const auto feedback = ErrorFeedback::For(Spec(1000, 0.01f, {10, 400, 1000}));
  std::vector<double> given(1000), arrived(1000);
  for (int step = 0; step < 500; ++step) {
    std::vector<float> gradient(1000);
    if (step < 100)
      for (float& value : gradient) value = static_cast<float>(random.Below(17)) - 8.0f;  // exact sums
    const std::vector<float> sent = Push(*feedback, gradient);
    size_t chosen = 0;
    for (size_t i = 0; i < 1000; ++i) {
      given[i] += gradient[i];
      arrived[i] += sent[i];
      chosen += sent[i] != 0;
    }
    EXPECT_LE(chosen, 1u + 4u + 6u);
  }
  EXPECT_EQ(given, arrived);
}

TEST(ErrorFeedback, APushThatWasNotTakenOverChangesNothing) {
  const auto feedback = ErrorFeedback::For(Spec(4, 0.25f));
  EXPECT_EQ(Push(*feedback, {1, 2, 3, 4}), (std::vector<float>{0, 0, 0, 4}));
  {
    const auto dropped = feedback->Choose(Pieces({5, 5, 5, 5}), {}, 1.0);
  }
  EXPECT_EQ(Push(*feedback, {0, 0, 0, 0}), (std::vector<float>{0, 0, 3, 0}));
}

TEST(ErrorFeedback, SegmentsThatAreLeftOutKeepTheirRest) {
  const auto feedback = ErrorFeedback::For(Spec(4, 0.5f, {2, 4}));
  EXPECT_EQ(Push(*feedback, {1, 2, 3, 4}), (std::vector<float>{0, 2, 0, 4}));
  const std::byte second{2};
  EXPECT_EQ(Push(*feedback, {9, 9, 0, 0}, {&second, 1}), (std::vector<float>{0, 0, 3, 0}));
  EXPECT_EQ(Push(*feedback, {0, 0, 0, 0}), (std::vector<float>{1, 0, 0, 0}));
}

TEST(ErrorFeedback, TheRestIsThatOfTheGradientWhateverItIsScaledBy) {
  const auto feedback = ErrorFeedback::For(Spec(2, 0.5f));
  EXPECT_EQ(Push(*feedback, {512, 1024}, {}, 1.0 / 256), (std::vector<float>{0, 1024}));  // 2 is left
  EXPECT_EQ(Push(*feedback, {64, 0}, {}, 1.0 / 16), (std::vector<float>{96, 0}));
}

TEST(ErrorFeedback, PiecesWithoutMemoryAreZeros) {
  const auto feedback = ErrorFeedback::For(Spec(3, 0.3f));
  EXPECT_EQ(Push(*feedback, {3, 2, 1}), (std::vector<float>{3, 0, 0}));
  PieceList<const std::byte> none;
  none.Add({static_cast<const std::byte*>(nullptr), 12});
  auto chosen = feedback->Choose(none, {}, 1.0);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(SentOf(chosen), (std::vector<float>{0, 2, 0}));
}

TEST(ErrorFeedback, WhatIsWrongIsForOthersToRefuse) {
  const auto feedback = ErrorFeedback::For(Spec(2, 0.5f));
  EXPECT_FALSE(feedback->Choose(Pieces({1, 2, 3}), {}, 1.0));
  EXPECT_FALSE(feedback->Choose(Pieces({1, std::numeric_limits<float>::quiet_NaN()}), {}, 1.0));
  EXPECT_FALSE(feedback->Choose(Pieces({1, 2}), {}, 0.0));
  EXPECT_EQ(Push(*feedback, {1, 2}), (std::vector<float>{0, 2}));  // nothing of it is left, and no lock
}

}  // namespace
}  // namespace cairn::client
