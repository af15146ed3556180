// Reads the four IDX files of MNIST (big-endian magic, dimensions,
// then bytes). Checked reads: a short or wrong file is an error that names it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "cairn/status.h"

namespace mnist {

inline constexpr size_t kPixels = 28 * 28;
inline constexpr size_t kClasses = 10;

struct Samples {
  std::vector<float> pixels;    // count × 784, 0 to 1
  std::vector<uint8_t> labels;  // count, 0 to 9
  size_t count() const { return labels.size(); }
};

inline cairn::Result<std::vector<uint8_t>> ReadIdx(const std::string& path, uint32_t want_magic,
                                                   size_t bytes_each) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return {cairn::Code::kNotFound, path + " can't be opened: fetch the data with script/fetch-mnist"};
  std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto u32 = [&](size_t at) {
    return uint32_t{bytes[at]} << 24 | uint32_t{bytes[at + 1]} << 16 | uint32_t{bytes[at + 2]} << 8 |
           bytes[at + 3];
  };
  const size_t header = bytes_each == 1 ? 8 : 16;
  if (bytes.size() < header || u32(0) != want_magic)
    return {cairn::Code::kInvalidArgument, path + " is not the IDX file expected here"};
  const size_t count = u32(4);
  if (bytes_each != 1 && size_t{u32(8)} * u32(12) != bytes_each)
    return {cairn::Code::kInvalidArgument, path + " does not hold images of 28 x 28"};
  if (bytes.size() != header + count * bytes_each)
    return {cairn::Code::kInvalidArgument, path + " is cut short: fetch it again"};
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header));
  return bytes;
}

// `set` is "train" or "t10k".
inline cairn::Result<Samples> Load(const std::string& folder, const std::string& set) {
  auto images = ReadIdx(folder + "/" + set + "-images-idx3-ubyte", 0x00000803, kPixels);
  if (!images.ok()) return images.status();
  auto labels = ReadIdx(folder + "/" + set + "-labels-idx1-ubyte", 0x00000801, 1);
  if (!labels.ok()) return labels.status();
  if (images->size() != labels->size() * kPixels)
    return {cairn::Code::kInvalidArgument, folder + ": as many labels as images are expected in " + set};
  Samples samples;
  samples.labels = *std::move(labels);
  for (uint8_t label : samples.labels)
    if (label >= kClasses) return {cairn::Code::kInvalidArgument, folder + ": a label above 9 in " + set};
  samples.pixels.reserve(images->size());
  for (uint8_t p : *images) samples.pixels.push_back(static_cast<float>(p) / 255.0f);
  return samples;
}

}  // namespace mnist
