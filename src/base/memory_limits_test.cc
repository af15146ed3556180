// What is left of memory: read from files that the tests lay out, and from this process.
#include "base/memory_limits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace cairn {
namespace {

class MemoryLimitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    files_.proc = root_.string() + "/proc";
    files_.cgroup = root_.string() + "/cgroup";
    Write("proc/sys/kernel/random/boot_id", "11-22\n");
    Write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    4000 kB\nSwapFree:  96 kB\n");
    Write("proc/self/statm", "10 5 5 5 0 5 0\n");
    Write("proc/self/cgroup", "0::/job/step\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  const std::filesystem::path root_ =
      std::filesystem::path(::testing::TempDir()) / ("memory_limits." + std::to_string(getpid()));
  MemoryFiles files_;
};

TEST_F(MemoryLimitsTest, TheMachineIsTheLimitWhereNothingElseIs) {
  const MemoryLeft left = ReadMemoryLeft(files_);
  EXPECT_EQ(left.kind, MemoryKind::kMachine);
  EXPECT_EQ(left.bytes, 4096u * 1024);
}

TEST_F(MemoryLimitsTest, TheTightestGroupCountsAndCachedFilesDoNot) {
  Write("cgroup/job/memory.max", "1000000\n");
  Write("cgroup/job/memory.current", "700000\n");
  Write("cgroup/job/memory.stat", "anon 600000\ninactive_file 100000\n");
  Write("cgroup/job/step/memory.max", "max\n");
  Write("cgroup/job/step/memory.current", "600000\n");
  const MemoryLeft left = ReadMemoryLeft(files_);
  EXPECT_EQ(left.kind, MemoryKind::kControlGroup);
  EXPECT_EQ(left.bytes, 400000u);
  EXPECT_EQ(left.group, ReadMemoryLeft(files_).group);
}

TEST_F(MemoryLimitsTest, VersionOneAndAPathThatIsTheHosts) {
  Write("proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/abc\n");
  Write("cgroup/memory/memory.limit_in_bytes", "50000\n");
  Write("cgroup/memory/memory.usage_in_bytes", "60000\n");
  const MemoryLeft left = ReadMemoryLeft(files_);
  EXPECT_EQ(left.kind, MemoryKind::kControlGroup);
  EXPECT_EQ(left.bytes, 0u);
}

TEST_F(MemoryLimitsTest, AddressSpaceIsAProcessesOwn) {
  files_.address_space = 100 * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const MemoryLeft left = ReadMemoryLeft(files_);
  EXPECT_EQ(left.kind, MemoryKind::kAddressSpace);
  EXPECT_EQ(left.bytes, 90 * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  files_.address_space = UINT64_MAX;
  EXPECT_NE(left.group, ReadMemoryLeft(files_).group);
}

TEST_F(MemoryLimitsTest, NothingThatCanBeReadIsUnknown) {
  std::filesystem::remove_all(root_);
  EXPECT_EQ(ReadMemoryLeft(files_).kind, MemoryKind::kUnknown);
}

TEST(MemoryLimits, ThisProcessHasSomethingLeft) {
  const MemoryLeft left = ReadMemoryLeft(MemoryFilesOfThisProcess());
  EXPECT_NE(left.kind, MemoryKind::kUnknown);
  EXPECT_GT(left.bytes, 1u << 20);
}

TEST_F(MemoryLimitsTest, OnlyATighterLimitCounts) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  files_.address_space = uint64_t{1} << 50;
  EXPECT_EQ(ReadMemoryLeft(files_).kind, MemoryKind::kMachine);
  files_.address_space = 3 * page;  // less than is used already
  EXPECT_EQ(ReadMemoryLeft(files_).kind, MemoryKind::kAddressSpace);
  EXPECT_EQ(ReadMemoryLeft(files_).bytes, 0u);
}

TEST_F(MemoryLimitsTest, ControllersMayShareAHierarchyAndHaveNoLimit) {
  Write("proc/self/cgroup", "4:cpu,memory:/\n");
  Write("cgroup/memory/memory.limit_in_bytes", "50000\n");
  Write("cgroup/memory/memory.usage_in_bytes", "20000\n");
  EXPECT_EQ(ReadMemoryLeft(files_).bytes, 30000u);
  std::filesystem::remove(root_ / "proc/meminfo");
  Write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // as the kernel says "none"
  EXPECT_EQ(ReadMemoryLeft(files_).kind, MemoryKind::kUnknown);
}

TEST_F(MemoryLimitsTest, GroupsOfTwoMachinesAreTwo) {
  Write("cgroup/job/step/memory.max", "1000000\n");
  Write("cgroup/job/step/memory.current", "0\n");
  const uint64_t here = ReadMemoryLeft(files_).group;
  Write("proc/sys/kernel/random/boot_id", "33-44\n");
  EXPECT_NE(ReadMemoryLeft(files_).group, here);
}

TEST(MemoryLimits, EachKindHasItsWords) {
  EXPECT_STREQ(Words(MemoryKind::kMachine), "the machine's memory");
  EXPECT_STREQ(Words(MemoryKind::kControlGroup), "the control group's limit");
  EXPECT_STREQ(Words(MemoryKind::kAddressSpace), "ulimit -v");
}

}  // namespace
}  // namespace cairn
