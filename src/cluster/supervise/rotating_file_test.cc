#include "cluster/supervise/rotating_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <iterator>

namespace cairn::cluster {
namespace {

struct Rotating : ::testing::Test {
  std::string folder = ::testing::TempDir() + "rotating-XXXXXX";
  std::string path;
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    path = folder + "/worker-0.log";
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  static std::string Read(const std::string& name) {
    std::ifstream file(name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(Rotating, TheNewestLinesStayAndOneOlderFile) {
  RotatingFile file;
  ASSERT_TRUE(file.Open(path, 100));
  std::string newest;
  for (int i = 0; i < 1'000; ++i) file.Write(newest = "line " + std::to_string(i));
  ASSERT_TRUE(file.Flush());
  const std::string now = Read(path), before = Read(path + ".1");
  EXPECT_TRUE(now.ends_with(newest + "\n")) << now;
  EXPECT_TRUE(now.starts_with("[cairn] the lines before this are in " + path + ".1\nline ")) << now;
  // The two files are the end of what was written, without a gap.
  const std::string first = now.substr(now.find("\nline ") + 6, 3);
  EXPECT_TRUE(before.ends_with("line " + std::to_string(std::stoi(first) - 1) + "\n")) << before << "\n"
                                                                                       << now;
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++files;
  EXPECT_EQ(files, 2u);
  EXPECT_LE(before.size(),
            100 + std::string("[cairn] the lines before this are in ").size() + path.size() + 3);
}

TEST_F(Rotating, WithoutABoundNothingIsRenamed) {
  std::ofstream(path) << "earlier\n";
  RotatingFile file;
  ASSERT_TRUE(file.Open(path, RotatingFile::kNoBound));
  for (int i = 0; i < 1'000; ++i) file.Write("line");
  ASSERT_TRUE(file.Flush());
  EXPECT_TRUE(Read(path).starts_with("earlier\nline\n"));
  EXPECT_FALSE(std::filesystem::exists(path + ".1"));
}

TEST_F(Rotating, AFileThatCanNotBeWrittenIsToldOnce) {
  RotatingFile missing, full;
  EXPECT_FALSE(missing.Open(folder + "/no/such/folder.log", 100));
  missing.Write("x");
  EXPECT_TRUE(missing.Flush());
  ASSERT_TRUE(full.Open("/dev/full", RotatingFile::kNoBound));
  full.Write("x");
  EXPECT_FALSE(full.Flush());
  EXPECT_TRUE(full.Flush());
}

}  // namespace
}  // namespace cairn::cluster
