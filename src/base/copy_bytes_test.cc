#include "base/copy_bytes.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace cairn {
namespace {

TEST(CopyBytes, CopiesExactlyThatMuchFromAnywhereToAnywhere) {
  Random random(3);
  std::vector<std::byte> from(5000);
  for (std::byte& b : from) b = static_cast<std::byte>(random.Next() | 1);
  for (size_t size : std::vector<size_t>{0, 1, 15, 16, 63, 64, 65, 127, 128, 1000, 4096, 4900}) {
    for (size_t from_at = 0; from_at < 20; from_at += 3) {
      for (size_t to_at = 0; to_at < 70; to_at += 7) {
        std::vector<std::byte> to(5100);
        CopyBytes(to.data() + to_at, from.data() + from_at, size);
        std::vector<std::byte> expected(5100);
        for (size_t i = 0; i < size; ++i) expected[to_at + i] = from[from_at + i];
        ASSERT_EQ(to, expected) << size << " bytes from " << from_at << " to " << to_at;
      }
    }
  }
  CopyBytes(nullptr, nullptr, 0);
}

}  // namespace
}  // namespace cairn
