// Few descriptors: strangers at the scheduler's port lock nobody out, and who has none left says so.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "child_process.h"
#include "contract/peers.h"
#include "raw_peer.h"
#include "scheduler/node/scheduler_node.h"
#include "transport/shm/memory.h"
#include "transport/shm/rendezvous.h"

namespace cairn {
namespace {

using scheduler::SchedulerNode;
using scheduler::SchedulerNodeOptions;
using testing::RawPeer;
using transport::Child;

constexpr rlim_t kFew = 128;

void Schedule(int, int out) {
  const rlimit limit{kFew, kFew};
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(2);
  SchedulerNodeOptions options;
  options.log = transport::Silent();
  auto node = SchedulerNode::Start(options);
  if (!node.ok()) _exit(3);
  transport::Tell(out, (*node)->endpoint().port);
  (void)(*node)->Wait();
}

TEST(Descriptors, StrangersAtTheSchedulerLockNobodyOut) {
  Child scheduler(Schedule);
  const auto port = scheduler.Hear<uint16_t>();
  // Each says something, gets its answer, and stays.
  std::vector<std::unique_ptr<RawPeer>> strangers;
  for (int i = 0; i < 110; ++i) {
    strangers.push_back(std::make_unique<RawPeer>(port));
    ASSERT_TRUE(strangers.back()->Send(wire::ControlMessage(wire::StatusRequest{1})));
    ASSERT_TRUE(strangers.back()->Await<wire::StatusReply>()) << "stranger " << i;
  }
  // And as many that say nothing.
  for (int i = 0; i < 110; ++i) strangers.push_back(std::make_unique<RawPeer>(port));
  for (uint64_t uid = 1; uid <= 2; ++uid) {
    auto node = std::make_unique<RawPeer>(port);
    wire::Register hello;
    hello.role = uid == 1 ? wire::Role::kServer : wire::Role::kWorker;
    hello.uid = uid;
    hello.endpoint = {"127.0.0.1", 9};
    ASSERT_TRUE(node->Send(wire::ControlMessage(hello)));
    EXPECT_TRUE(node->Await<wire::Registered>()) << "node " << uid;
    strangers.push_back(std::move(node));
  }
}

// 64 KiB is what a stranger may say at once, also after its first message.
TEST(Descriptors, WhoHasNotRegisteredMayNotClaimMore) {
  SchedulerNodeOptions options;
  options.log = transport::Silent();
  auto scheduler = SchedulerNode::Start(options).value();
  RawPeer stranger(scheduler->endpoint().port);
  ASSERT_TRUE(stranger.Send(wire::ControlMessage(wire::StatusRequest{1})));
  ASSERT_TRUE(stranger.Await<wire::StatusReply>());
  wire::FrameHeader claim;
  claim.body_bytes = 1 << 20;
  ASSERT_TRUE(stranger.SendBytes(std::as_bytes(std::span(&claim, 1))));
  EXPECT_TRUE(stranger.Closed());
}

TEST(Descriptors, SharedMemoryThatFindsNoneLeftDoesNotBlameThePeer) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const auto own = transport::shm::Memory::Create(64 * 1024);
  ASSERT_TRUE(own.ok());
  ASSERT_TRUE(transport::shm::SendSetup(ends[0], *own).ok());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = fcntl(ends[0], F_DUPFD_CLOEXEC, 0);  // the lowest that is free
  ASSERT_GE(next, 0);
  close(next);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto peers = transport::shm::ReceiveSetup(ends[1]);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(peers.ok());
  EXPECT_EQ(peers.status().code(), Code::kResourceExhausted);
  EXPECT_NE(peers.status().message().find("too many open files"), std::string::npos)
      << peers.status().message();
  EXPECT_NE(peers.status().message().find("ulimit -n"), std::string::npos);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace cairn
