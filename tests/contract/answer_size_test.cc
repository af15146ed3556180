// A worker whose server, or something at its address, claims answers larger than what was asked for: it
// takes no memory for them, says what is wrong, and loses nothing.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "cairn/client.h"
#include "contract/peers.h"
#include "lying_server.h"
#include "scheduler/node/scheduler_node.h"
#include "server/node/server_node.h"

namespace cairn {
namespace {

constexpr uint32_t kClaim = 200'000'000;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kAnswersSanitized = true;  // their shadow memory is counted too
#else
constexpr bool kAnswersSanitized = false;
#endif

uint64_t PeakAddressSpace() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    uint64_t kib = 0;
    if (word == "VmPeak:" && status >> kib) return kib * 1024;
  }
  return 0;
}

TEST(AnswerSize, AClaimBeyondWhatWasAskedForIsRefused) {
  scheduler::SchedulerNodeOptions wanted;
  wanted.core.slot_count = 4;
  wanted.log = transport::Silent();
  const auto scheduler = scheduler::SchedulerNode::Start(wanted).value();
  testing::LyingServer liar;
  ASSERT_TRUE(liar.usable());
  server::ServerNodeOptions serving;
  serving.control.scheduler = scheduler->endpoint();
  serving.advertise_host = "127.0.0.1";
  serving.advertise_port = liar.port();
  serving.log = transport::Silent();
  // Whoever advertises another port does not say where it listens: it is told to, where a port is free.
  Result<std::unique_ptr<server::ServerNode>> server(Code::kUnavailable, "not tried");
  for (int i = 0; i < 20 && !server.ok(); ++i) {
    serving.port = testing::LyingServer().port();
    server = server::ServerNode::Start(serving);
  }
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  liar.Start(serving.port);

  Mutex mutex;  // guards log
  std::string log;
  ClientOptions options;
  options.scheduler_port = scheduler->endpoint().port;
  options.connect_timeout_ms = 60'000;
  options.log = [&](const std::string& line) {
    MutexLock lock(mutex);
    log += line + "\n";
  };
  const std::unique_ptr<Client> client = Client::Connect(options).value();
  DenseTable table = client->CreateDense({.name = "w", .size = 1000}).value();
  const std::vector<float> add(1000, 1.0f);
  std::vector<float> out(1000);
  ASSERT_TRUE(table.Push(std::span<const float>(add), {.op = PushOp::kAssign}).Wait().ok());
  ASSERT_TRUE(table.Pull(std::span<float>(out)).Wait().ok());

  // Nothing but lies: the call ends at its deadline.
  const uint64_t before = PeakAddressSpace();
  liar.Claim(kClaim);
  const Status late = table.Pull(std::span<float>(out), {.timeout_ms = 3'000}).Wait();
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late.ToString();
  EXPECT_GE(liar.claims(), 2u) << "it asks again on another connection";
  EXPECT_GE(liar.closed(), 1u);
  EXPECT_LT(kAnswersSanitized ? 0 : PeakAddressSpace() - before, kClaim / 2);
  {
    MutexLock lock(mutex);
    EXPECT_NE(log.find("a body of 200000000 bytes where"), std::string::npos) << log;
  }

  // Who waits long enough gets the truth.
  Pending honest = table.Pull(std::span<float>(out), {.timeout_ms = 60'000});
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(50);
  for (const uint32_t told = liar.claims();
       liar.claims() == told && std::chrono::steady_clock::now() < give_up;)
    std::this_thread::yield();
  liar.Claim(0);
  EXPECT_TRUE(honest.Wait().ok());
  EXPECT_EQ(out, add);
}

}  // namespace
}  // namespace cairn
