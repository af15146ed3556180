// For tests: a model whose tensors lie here and there, one table of segments.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cairn/client.h"

namespace cairn::testing {

struct Model {
  explicit Model(const std::vector<uint64_t>& sizes, float value = 0) {
    for (uint64_t size : sizes) tensors.emplace_back(size, value);
  }
  // LeNet-5: ten tensors, 61,706 elements.
  static std::vector<uint64_t> LeNet() { return {150, 6, 2400, 16, 48000, 120, 10080, 84, 840, 10}; }

  uint64_t size() const {
    uint64_t sum = 0;
    for (const auto& tensor : tensors) sum += tensor.size();
    return sum;
  }
  std::vector<uint64_t> segments() const {
    std::vector<uint64_t> ends;
    uint64_t end = 0;
    for (const auto& tensor : tensors) ends.push_back(end += tensor.size());
    return ends;
  }
  // Valid until the model changes.
  std::vector<std::span<const float>> in() const { return {tensors.begin(), tensors.end()}; }
  std::vector<std::span<float>> out() { return {tensors.begin(), tensors.end()}; }
  void Fill(float value) {
    for (auto& tensor : tensors) tensor.assign(tensor.size(), value);
  }
  bool operator==(const Model&) const = default;

  std::vector<std::vector<float>> tensors;
};

inline TableSpec SpecOf(const Model& model, Mode mode, OptimizerKind optimizer, uint32_t flags = 0) {
  TableSpec spec{.name = "model", .mode = mode, .optimizer = optimizer, .size = model.size()};
  spec.optimizer_flags = flags;
  spec.segments = model.segments();
  return spec;
}

inline DenseTable Create(Client& client, TableSpec spec) {
  auto table = client.CreateDense(std::move(spec));
  EXPECT_TRUE(table.ok()) << table.status().ToString();
  return std::move(table).value();
}

// A mask of these segments, of at most 16.
inline std::vector<std::byte> MaskOf(const std::vector<size_t>& segments) {
  std::vector<std::byte> mask(2);
  for (size_t s : segments) mask[s / 8] |= std::byte{1} << (s % 8);
  return mask;
}

}  // namespace cairn::testing
