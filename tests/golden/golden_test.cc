// Frozen bytes of every control message, data frame and state. A failure here means that old and
// new releases, or a new release and an old log, no longer understand each other. If that is
// meant, raise kProtocolVersion, say so in docs/internals/wire-format.md, and rewrite the files with
// `golden_test --update` (or CAIRN_UPDATE_GOLDEN=1).
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "wire/coding.h"
#include "wire/control.h"
#include "wire/data.h"
#include "wire/replica.h"
#include "wire/wire_samples.h"

namespace cairn::wire {
namespace {

bool update = false;

std::filesystem::path Folder() { return CAIRN_GOLDEN_DIR; }

std::string AsString(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What each file should hold, by its path below the folder.
std::map<std::string, std::string> Wanted() {
  BufferPool pool;
  std::map<std::string, std::string> files;
  for (const auto& samples : {SampleData(pool), SampleReplication(pool)}) {
    for (const NamedFrame& sample : samples)
      files["frames/" + sample.name + ".bin"] = AsString(Flatten(*sample.frame, pool).bytes());
  }
  for (const NamedFrame& sample : SampleCoded(pool))
    files["frames/" + sample.name + ".bin"] = AsString(Flatten(*sample.frame, pool).bytes());
  for (const ControlMessage& message : SampleControl()) {
    const FramePtr frame = EncodeControl(message, pool);
    files["frames/control_" + std::string(Name(message)) + ".bin"] = AsString(Flatten(*frame, pool).bytes());
  }
  files["frames/control_Heartbeat_memory.bin"] =
      AsString(Flatten(*EncodeControl(SampleMemoryHeartbeat(), pool), pool).bytes());
  files["frames/control_StillWaiting_held.bin"] =
      AsString(Flatten(*EncodeControl(SampleHeldAnswer(), pool), pool).bytes());
  files["states/full.bin"] = AsString(EncodeState(SampleState()));
  files["states/empty.bin"] = AsString(EncodeState(ClusterState()));
  return files;
}

TEST(Golden, EncodingHasNotChanged) {
  for (const auto& [name, bytes] : Wanted()) {
    const std::filesystem::path path = Folder() / name;
    if (update) {
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path, std::ios::binary) << bytes;
      continue;
    }
    const std::string frozen = ReadFile(path);
    ASSERT_FALSE(frozen.empty()) << path << " is missing: golden_test --update writes it";
    size_t at = 0;
    while (at < bytes.size() && at < frozen.size() && bytes[at] == frozen[at]) ++at;
    EXPECT_TRUE(bytes == frozen) << name << ": " << frozen.size() << " bytes frozen, " << bytes.size()
                                 << " encoded now, first difference at byte " << at;
  }
}

TEST(Golden, FrozenFramesStillDecode) {
  BufferPool pool;
  for (const auto& [name, unused] : Wanted()) {
    SCOPED_TRACE(name);
    const std::string frozen = ReadFile(Folder() / name);
    const auto bytes = std::as_bytes(std::span(frozen));
    if (name.starts_with("states/")) {
      EXPECT_TRUE(DecodeState(bytes).ok());
      continue;
    }
    Result<InFrame> in = Parse(bytes, kMaxBodyBytes, pool);
    ASSERT_TRUE(in.ok()) << in.status().ToString();
    if ((in->header.flags & kFlagCoded) != 0) {
      ASSERT_TRUE(DecodeFrame(&*in, kMaxBodyBytes, pool).ok());
    }
    PushReplyView refusal;
    switch (in->header.type) {
      case FrameType::kControl: EXPECT_TRUE(DecodeControl(in->header, in->body()).ok()); break;
      case FrameType::kPush:
      case FrameType::kContribute:
      case FrameType::kDone: EXPECT_TRUE(DecodePush(in->header, in->body()).ok()); break;
      case FrameType::kPull: EXPECT_TRUE(DecodePull(in->header, in->body()).ok()); break;
      case FrameType::kPushReply: EXPECT_TRUE(DecodePushReply(in->header, in->body()).ok()); break;
      case FrameType::kError: EXPECT_TRUE(DecodeError(in->header, in->body()).ok()); break;
      case FrameType::kPullReply:
      case FrameType::kRoundReply:
        EXPECT_TRUE(DecodeRoundRefusal(in->header, in->body(), &refusal) ||
                    DecodeValues(in->header, in->body()).ok());
        break;
      case FrameType::kReplicate: {
        OpReader reader(in->body());
        OpView op;
        int ops = 0;
        while (reader.Next(&op)) ++ops;
        EXPECT_TRUE(reader.status().ok());
        EXPECT_EQ(ops, 3);
        break;
      }
      case FrameType::kClock:
      case FrameType::kClockReply: EXPECT_TRUE(in->body().empty()); break;
      case FrameType::kReplicaAck: EXPECT_TRUE(DecodeReplicaAck(in->header, in->body()).ok()); break;
    }
  }
}

TEST(Golden, NoFileIsLeftOver) {
  const auto wanted = Wanted();
  for (const char* folder : {"frames", "states"}) {
    for (const auto& entry : std::filesystem::directory_iterator(Folder() / folder)) {
      const std::string name = folder + ("/" + entry.path().filename().string());
      EXPECT_TRUE(wanted.contains(name)) << name << " belongs to no message";
    }
  }
}

}  // namespace
}  // namespace cairn::wire

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const char* environment = std::getenv("CAIRN_UPDATE_GOLDEN");
  cairn::wire::update = environment != nullptr && std::string(environment) == "1";
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--update") == 0) cairn::wire::update = true;
  }
  return RUN_ALL_TESTS();
}
