// Two ends of shared memory in one process: bytes come out as they went in, whatever their sizes;
// counters that can't be are noticed; each sleep is woken once.
#include "transport/shm/ring_pair.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.h"
#include "transport/shm/choice.h"

namespace cairn::transport::shm {
namespace {

// What another process would have of `memory`.
Memory AsPeer(const Memory& memory) {
  return Memory::MapPeers(dup(memory.fd()), memory.ring_bytes()).value();
}

struct Ends {
  explicit Ends(size_t ring_bytes = kMinRingBytes)
      : a_memory(Memory::Create(ring_bytes).value()),
        b_memory(Memory::Create(ring_bytes).value()),
        a_words(a_memory.words()),
        b_words(b_memory.words()) {
    Memory b_as_seen = AsPeer(b_memory);
    b = std::make_unique<RingPair>(std::move(b_memory), AsPeer(a_memory));
    a = std::make_unique<RingPair>(std::move(a_memory), std::move(b_as_seen));
  }
  Memory a_memory, b_memory;  // moved from
  Words &a_words, &b_words;   // writable: what a peer that misbehaves may do to its own
  std::unique_ptr<RingPair> a, b;
};

std::vector<std::byte> Bytes(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next());
  return bytes;
}

size_t WriteOne(RingPair& ring, std::span<const std::byte> bytes) {
  const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  return ring.Write({&piece, 1});
}

TEST(RingPair, BytesComeOutAsTheyWentIn) {
  Ends ends;
  Random random(3);
  const std::vector<std::byte> sent = Bytes(3'000'000, 5);
  std::vector<std::byte> got(sent.size() + 1);
  size_t in = 0, out = 0;
  for (int turn = 0; out < sent.size(); ++turn) {
    ASSERT_LT(turn, 10'000) << "bytes got stuck: " << in << " went in, " << out << " came out";
    const std::span<const std::byte> left = std::span(sent).subspan(in);
    const size_t first = std::min<size_t>(left.size(), random.Below(50'000));
    const size_t second = std::min<size_t>(left.size() - first, random.Below(50'000));
    const iovec pieces[3] = {{const_cast<std::byte*>(left.data()), first},
                             {nullptr, 0},
                             {const_cast<std::byte*>(left.data()) + first, second}};
    const size_t room = ends.a->Room(kMinRingBytes);
    const size_t wrote = ends.a->Write(pieces);
    EXPECT_EQ(wrote, std::min(room, first + second));
    in += wrote;
    ASSERT_EQ(ends.b->Readable(), in - out);
    const size_t some = std::min<size_t>(random.Below(70'000), got.size() - out);
    const size_t cut = random.Below(some + 1);
    out += ends.b->Read({std::span(got).subspan(out, cut), std::span(got).subspan(out + cut, some - cut)});
    ASSERT_LE(out, in);
  }
  got.pop_back();
  EXPECT_TRUE(got == sent);
  EXPECT_EQ(ends.b->Read({std::span(got), {}}), 0u);
}

TEST(RingPair, AFullRingTakesNothingUntilSomeIsRead) {
  Ends ends;
  const std::vector<std::byte> bytes = Bytes(2 * kMinRingBytes, 1);
  EXPECT_EQ(WriteOne(*ends.a, bytes), kMinRingBytes);
  EXPECT_EQ(WriteOne(*ends.a, bytes), 0u);
  std::vector<std::byte> got(100);
  EXPECT_EQ(ends.b->Read({std::span(got), {}}), 100u);
  EXPECT_EQ(WriteOne(*ends.a, bytes), 100u);
}

// A peer may store anything into its own words.
TEST(RingPair, CountersThatCannotBeAreNoticed) {
  const std::vector<std::byte> bytes = Bytes(1000, 1);
  std::vector<std::byte> got(500);
  for (const uint64_t lie : {uint64_t{0}, uint64_t{499}, uint64_t{999}, 500 + kMinRingBytes + 1, ~uint64_t{0},
                             uint64_t{1} << 63}) {
    Ends ends;
    EXPECT_EQ(WriteOne(*ends.a, bytes), 1000u);
    EXPECT_EQ(ends.b->Read({std::span(got), {}}), 500u);
    ends.a_words.written.store(lie);
    EXPECT_EQ(ends.b->Readable(), 0u) << lie;
    EXPECT_TRUE(ends.b->broken()) << lie;
    ends.a_words.written.store(1000);
    EXPECT_EQ(ends.b->Read({std::span(got), {}}), 0u) << "once broken, always broken";
  }
  for (const uint64_t lie : {uint64_t{499}, uint64_t{1001}, ~uint64_t{0}, uint64_t{1} << 63}) {
    Ends ends;
    EXPECT_EQ(WriteOne(*ends.a, bytes), 1000u);
    EXPECT_EQ(ends.b->Read({std::span(got), {}}), 500u);
    EXPECT_EQ(ends.a->Room(kMinRingBytes), kMinRingBytes - 500);
    ends.b_words.taken.store(lie);
    EXPECT_EQ(ends.a->Room(kMinRingBytes), 0u) << lie;
    EXPECT_TRUE(ends.a->broken()) << lie;
    EXPECT_EQ(WriteOne(*ends.a, bytes), 0u);
  }
  Ends good;  // the most that can be
  EXPECT_EQ(WriteOne(*good.a, bytes), 1000u);
  good.a_words.written.store(kMinRingBytes);
  EXPECT_EQ(good.b->Readable(), kMinRingBytes);
}

TEST(RingPair, EachSleepIsWokenOnce) {
  Ends ends;
  const std::vector<std::byte> bytes = Bytes(kMinRingBytes, 1);
  std::vector<std::byte> got(kMinRingBytes);
  EXPECT_EQ(WriteOne(*ends.a, std::span(bytes).first(10)), 10u);
  EXPECT_FALSE(ends.a->PeerWaitsForData()) << "nobody sleeps";
  for (int sleep = 0; sleep < 3; ++sleep) {
    ends.b->AskForData();
    EXPECT_TRUE(ends.a->PeerWaitsForData());
    EXPECT_FALSE(ends.a->PeerWaitsForData());
    ends.b->Awake();
    EXPECT_FALSE(ends.a->PeerWaitsForData());
  }
  // Room: only when it is worth it.
  WriteOne(*ends.a, bytes);
  ends.a->AskForRoom();
  ends.b->Read({std::span(got).first(100), {}});
  EXPECT_FALSE(ends.b->PeerWaitsForRoom());
  ends.b->Read({std::span(got).first(kMinRingBytes / 2), {}});
  EXPECT_TRUE(ends.b->PeerWaitsForRoom());
  EXPECT_FALSE(ends.b->PeerWaitsForRoom());
  ends.a->Awake();
  ends.a->AskForRoom();
  EXPECT_TRUE(ends.b->PeerWaitsForRoom());
}

// Moves `total` bytes by move(at), which says how many it has moved; false where none has moved for long.
bool MoveAll(size_t total, const std::function<size_t(size_t)>& move) {
  constexpr auto kLong = std::chrono::seconds(30);
  auto moved = std::chrono::steady_clock::now();
  for (size_t at = 0; at < total;) {
    if (const size_t more = move(at); more > 0) {
      at += more;
      moved = std::chrono::steady_clock::now();
    } else if (std::chrono::steady_clock::now() - moved > kLong) {
      return false;
    } else {
      std::this_thread::yield();
    }
  }
  return true;
}

TEST(RingPair, TwoThreadsAndNoLocks) {
  Ends ends;
  const std::vector<std::byte> sent = Bytes(20'000'000, 9);
  std::thread writer([&] {
    EXPECT_TRUE(MoveAll(sent.size(), [&](size_t at) {
      return WriteOne(*ends.a, std::span(sent).subspan(at, std::min<size_t>(33'333, sent.size() - at)));
    })) << "the reader takes nothing";
  });
  std::vector<std::byte> got(sent.size());
  EXPECT_TRUE(MoveAll(got.size(), [&](size_t at) { return ends.b->Read({std::span(got).subspan(at), {}}); }))
      << "the writer gives nothing";
  writer.join();
  EXPECT_TRUE(got == sent);
}

TEST(Memory, ThePeerCanNeitherWriteNorResizeIt) {
  const Memory memory = Memory::Create(kMinRingBytes).value();
  EXPECT_EQ(mmap(nullptr, kWordsBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd(), 0), MAP_FAILED);
  EXPECT_NE(ftruncate(memory.fd(), 0), 0);
  EXPECT_NE(ftruncate(memory.fd(), 1 << 30), 0);
  EXPECT_LT(write(memory.fd(), "x", 1), 0);
  EXPECT_NE(fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(Memory, WhatIsNoSealedMemoryOfItsSizeIsRefused) {
  const auto code = [](int fd, uint64_t bytes) { return Memory::MapPeers(fd, bytes).status().code(); };
  const Memory good = Memory::Create(kMinRingBytes).value();
  EXPECT_TRUE(Memory::MapPeers(dup(good.fd()), kMinRingBytes).ok());
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{4096}, uint64_t{65537}, 2 * kMinRingBytes,
                               kMaxRingBytes * 2, ~uint64_t{0} - 4095}) {
    EXPECT_EQ(code(dup(good.fd()), bytes), Code::kProtocol) << bytes;
  }
  const int unsealed = memfd_create("unsealed", MFD_ALLOW_SEALING | MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(unsealed, static_cast<off_t>(kWordsBytes + kMinRingBytes)), 0);
  EXPECT_EQ(code(dup(unsealed), kMinRingBytes), Code::kProtocol);
  ASSERT_EQ(fcntl(unsealed, F_ADD_SEALS, F_SEAL_GROW), 0);
  EXPECT_EQ(code(dup(unsealed), kMinRingBytes), Code::kProtocol) << "it can still shrink";
  close(unsealed);
  char name[] = "/tmp/cairn-no-memory-XXXXXX";
  const int file = mkostemp(name, O_CLOEXEC);
  unlink(name);
  ASSERT_EQ(ftruncate(file, static_cast<off_t>(kWordsBytes + kMinRingBytes)), 0);
  EXPECT_EQ(code(file, kMinRingBytes), Code::kProtocol);
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  EXPECT_EQ(code(pipe_ends[0], kMinRingBytes), Code::kProtocol);
  close(pipe_ends[1]);
  EXPECT_FALSE(Memory::Create(100'000).ok());
}

TEST(PipeChoice, WordsOfTheEnvironment) {
  EXPECT_EQ(ParsePipe(nullptr, nullptr)->kind, PipeKind::kAuto);
  EXPECT_EQ(ParsePipe("", "")->kind, PipeKind::kAuto);
  EXPECT_EQ(ParsePipe("auto", nullptr)->kind, PipeKind::kAuto);
  EXPECT_EQ(ParsePipe("tcp", nullptr)->kind, PipeKind::kTcp);
  EXPECT_EQ(ParsePipe("shm", nullptr)->kind, PipeKind::kShm);
  EXPECT_FALSE(ParsePipe(nullptr, "same")->other_users);
  EXPECT_TRUE(ParsePipe(nullptr, "any")->other_users);
  EXPECT_EQ(ParsePipe("TCP", nullptr).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ParsePipe("tcp", "all").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace cairn::transport::shm
