// The log on disk: durable, torn tails cut off, damage named, one scheduler at a time.
#include "scheduler/metastore/local_log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/random.h"
#include "scheduler/metastore/log_records.h"
#include "scheduler/metastore/memory_disk.h"

namespace cairn::scheduler {
namespace {

std::vector<std::byte> RecordOf(const std::string& text) {
  auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

struct LocalLogTest : ::testing::Test {
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "cairn_log_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root = name;
    directory = root + "/a/state";
    path = directory + "/scheduler.log";
  }
  void TearDown() override { std::filesystem::remove_all(root); }

  void Write(const std::vector<std::string>& records) {
    auto log = LocalLog::Open(directory);
    ASSERT_TRUE(log.ok()) << log.status().ToString();
    ASSERT_TRUE((*log)->Load().ok());
    for (const std::string& record : records) ASSERT_TRUE((*log)->Append(RecordOf(record)).ok());
  }
  Result<std::vector<std::vector<std::byte>>> Read(size_t* torn = nullptr) {
    auto log = LocalLog::Open(directory);
    if (!log.ok()) return log.status();
    auto records = (*log)->Load();
    if (torn != nullptr) *torn = (*log)->torn_bytes();
    return records;
  }
  void Damage(size_t offset) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const char c = static_cast<char>(file.get() ^ 0x55);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(c);
  }
  std::string root, directory, path;
};

const std::vector<std::string> kRecords = {"one", "", "three and some more bytes", "four"};

TEST_F(LocalLogTest, KeepsRecordsAcrossOpens) {
  Write({"one", ""});
  Write({"three and some more bytes", "four"});
  auto records = Read();
  ASSERT_TRUE(records.ok()) << records.status().ToString();
  ASSERT_EQ(records->size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ((*records)[i], RecordOf(kRecords[i]));
}

TEST_F(LocalLogTest, ReplaceStartsOver) {
  Write(kRecords);
  {
    auto log = LocalLog::Open(directory);
    ASSERT_TRUE((*log)->Load().ok());
    ASSERT_TRUE((*log)->Replace(RecordOf("whole")).ok());
    ASSERT_TRUE((*log)->Append(RecordOf("next")).ok());
  }
  auto records = Read();
  ASSERT_EQ(records->size(), 2u);
  EXPECT_EQ((*records)[0], RecordOf("whole"));
  EXPECT_EQ((*records)[1], RecordOf("next"));
}

TEST_F(LocalLogTest, UnfinishedReplaceChangesNothing) {
  Write(kRecords);
  std::ofstream(directory + "/scheduler.log.new") << "half a rec";
  EXPECT_EQ(Read()->size(), 4u);
  EXPECT_FALSE(std::filesystem::exists(directory + "/scheduler.log.new"));
}

TEST_F(LocalLogTest, TornTailOfAnyLengthIsCutOffAndTheLogGoesOn) {
  const size_t last = kLogHeaderBytes + kRecords.back().size();
  for (size_t torn = 1; torn < last; ++torn) {
    std::filesystem::remove_all(directory);
    Write(kRecords);
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - torn);
    size_t cut = 0;
    auto records = Read(&cut);
    ASSERT_TRUE(records.ok()) << records.status().ToString();
    EXPECT_EQ(records->size(), 3u);
    EXPECT_EQ(cut, last - torn);
    Write({"five"});
    records = Read();
    ASSERT_EQ(records->size(), 4u);
    EXPECT_EQ(records->back(), RecordOf("five"));
  }
}

TEST_F(LocalLogTest, BadChecksumOrZerosAtTheVeryEndAreATornTail) {
  Write(kRecords);
  Damage(std::filesystem::file_size(path) - 1);
  EXPECT_EQ(Read()->size(), 3u);
  // A file system that had made the file longer but not written the bytes.
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + 4096);
  EXPECT_EQ(Read()->size(), 3u);
}

TEST_F(LocalLogTest, DamageInTheMiddleIsAnErrorThatSaysWhereAndWhatToDo) {
  const size_t third = 2 * kLogHeaderBytes + kRecords[0].size();
  // Every byte of the third record, its length included: a length that points beyond the end must
  // not pass for a torn tail.
  for (size_t i = 0; i < kLogHeaderBytes + kRecords[2].size(); ++i) {
    std::filesystem::remove_all(directory);
    Write(kRecords);
    const auto size = std::filesystem::file_size(path);
    Damage(third + i);
    auto records = Read();
    ASSERT_FALSE(records.ok()) << "byte " << i;
    EXPECT_EQ(records.status().code(), Code::kIo);
    EXPECT_NE(records.status().message().find(path), std::string::npos);
    EXPECT_NE(records.status().message().find("offset " + std::to_string(third)), std::string::npos);
    EXPECT_NE(records.status().message().find("move it away"), std::string::npos);
    EXPECT_EQ(std::filesystem::file_size(path), size) << "evidence is not touched";
  }
}

TEST_F(LocalLogTest, DamagedFirstRecordIsNeverTakenForAnEmptyLog) {
  Write({"only"});
  Damage(kLogHeaderBytes + 1);
  EXPECT_FALSE(Read().ok());
  std::filesystem::resize_file(path, 0);
  EXPECT_FALSE(Read().ok());
}

TEST_F(LocalLogTest, SecondSchedulerOnTheDirectoryGetsAClearError) {
  auto first = LocalLog::Open(directory);
  ASSERT_TRUE(first.ok());
  auto second = LocalLog::Open(directory + "/");
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
  EXPECT_NE(second.status().message().find("another scheduler uses the state directory " + directory),
            std::string::npos);
  first->reset();
  EXPECT_TRUE(LocalLog::Open(directory).ok());
}

TEST_F(LocalLogTest, SystemErrorsNameThePathAndTheCause) {
  std::ofstream(root + "/file") << "x";
  auto log = LocalLog::Open(root + "/file/state");
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.status().code(), Code::kIo);
  EXPECT_NE(log.status().message().find(root + "/file"), std::string::npos) << log.status().message();
  EXPECT_NE(log.status().message().find("directory"), std::string::npos);
  EXPECT_EQ(LocalLog::Open("").status().code(), Code::kInvalidArgument);
}

TEST_F(LocalLogTest, FullDiskFailsTheAppendAndAllLaterOnes) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  std::filesystem::create_directories(directory);
  std::filesystem::create_symlink("/dev/full", directory + "/scheduler.log.new");
  auto log = LocalLog::Open(directory);
  ASSERT_TRUE(log.ok());
  // Load would remove it as the rest of an unfinished compaction; here it stands for the full disk.
  Status status = (*log)->Replace(RecordOf("record"));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_NE(status.message().find("No space left on device"), std::string::npos) << status.message();
  std::filesystem::remove(directory + "/scheduler.log.new");
  EXPECT_EQ((*log)->Append(RecordOf("later")), status);
}

TEST_F(LocalLogTest, RecordBeyondTheBoundIsRefused) {
  auto log = LocalLog::Open(directory);
  ASSERT_TRUE((*log)->Load().ok());
  const std::vector<std::byte> huge(kMaxLogRecordBytes + 1);
  EXPECT_EQ((*log)->Append(huge).code(), Code::kResourceExhausted);
}

// The same log over a disk that loses power inside any write.
struct DiskLog {
  explicit DiskLog(MemoryDisk& disk) : log(disk.Files()) {}
  std::vector<std::string> Load() {
    auto loaded = log.Load();
    std::vector<std::string> texts;
    if (!loaded.ok()) return {loaded.status().ToString()};
    for (const auto& record : *loaded)
      texts.emplace_back(reinterpret_cast<const char*>(record.data()), record.size());
    return texts;
  }
  LocalLog log;
};

TEST(LocalLogOnADisk, PowerFailuresLoseNothingThatWasAcknowledged) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    MemoryDisk disk(seed);
    uint64_t written = 0;       // the last one that was tried
    uint64_t acknowledged = 0;  // the last one that has to be there
    const auto text_of = [](uint64_t n) { return std::to_string(n) + std::string(n * 97 % 1500, 'x'); };
    for (int start = 0; start < 12; ++start) {
      disk.PowerOn();
      disk.set_fate([&](bool) {
        return random.Chance(0.06) ? MemoryDisk::Fate::kPowerFails : MemoryDisk::Fate::kFine;
      });
      DiskLog log(disk);
      const auto loaded = log.Load();
      if (disk.down()) continue;
      uint64_t last = 0;
      if (!loaded.empty()) {
        last = std::stoull(loaded.back());
        ASSERT_EQ(loaded.back(), text_of(last)) << "seed " << seed;
      }
      ASSERT_GE(last, acknowledged) << "seed " << seed;
      ASSERT_LE(last, written) << "seed " << seed;
      acknowledged = written = last;
      while (!disk.down()) {
        const std::string text = text_of(++written);
        const Status status =
            random.Chance(0.2) ? log.log.Replace(RecordOf(text)) : log.log.Append(RecordOf(text));
        if (status.ok()) acknowledged = written;
      }
    }
  }
}

TEST(LocalLogOnADisk, WhatALoadReturnsIsDurableAlsoAfterAFailedSync) {
  MemoryDisk disk(1);
  {
    DiskLog log(disk);
    log.Load();
    ASSERT_TRUE(log.log.Append(RecordOf("one")).ok());
    disk.set_fate([](bool sync) { return sync ? MemoryDisk::Fate::kSyncFails : MemoryDisk::Fate::kFine; });
    EXPECT_EQ(log.log.Append(RecordOf("two")).code(), Code::kIo);
    EXPECT_FALSE(log.log.Append(RecordOf("three")).ok()) << "nobody knows what is on the disk";
    disk.set_fate({});
  }
  const std::vector<std::string> both{"one", "two"};
  EXPECT_EQ(DiskLog(disk).Load(), both);
  disk.FailPower(MemoryDisk::Left::kNothing);
  disk.PowerOn();
  EXPECT_EQ(DiskLog(disk).Load(), both) << "somebody has gone by it";
}

TEST(LocalLogOnADisk, SectorsInAnotherOrderAreATornTail) {
  MemoryDisk disk(3);
  const std::string large(5000, 'x');
  {
    DiskLog log(disk);
    log.Load();
    ASSERT_TRUE(log.log.Append(RecordOf("one")).ok());
    int steps = 0;
    disk.set_fate(
        [&](bool) { return ++steps == 2 ? MemoryDisk::Fate::kPowerFails : MemoryDisk::Fate::kFine; });
    EXPECT_FALSE(log.log.Append(RecordOf(large)).ok());
  }
  disk.set_fate({});
  disk.PowerOn();
  EXPECT_EQ(DiskLog(disk).Load().front(), "one");
}

}  // namespace
}  // namespace cairn::scheduler
