#include "cluster/supervise/process_end.h"

#include <gtest/gtest.h>

#include <csignal>

#include "base/memory_limits.h"

namespace cairn::cluster {
namespace {

TEST(ProcessEnd, SaysWhatHappened) {
  EXPECT_EQ(ToString(ProcessEnd{.code = 3}), "exited with code 3");
  EXPECT_EQ(ToString(ProcessEnd{.signal = SIGKILL}), "was killed by signal 9 (Killed)");
  EXPECT_EQ(ToString(ProcessEnd{.code = kOutOfMemoryCode}),
            "ran out of memory (exit code " + std::to_string(kOutOfMemoryCode) + ")");
}

TEST(ProcessEnd, HasTheExitCodeOfAShell) {
  EXPECT_EQ(ProcessEnd{.code = 3}.exit_code(), 3);
  EXPECT_EQ(ProcessEnd{.signal = SIGTERM}.exit_code(), 143);
  EXPECT_TRUE(ProcessEnd{}.clean());
  EXPECT_FALSE(ProcessEnd{.signal = SIGTERM}.clean());
}

TEST(NodeName, OneOrSeveral) {
  EXPECT_EQ(ToString(NodeName{wire::Role::kScheduler, 0}), "scheduler");
  EXPECT_EQ(ToString(NodeName{wire::Role::kServer, 2}), "server 2");
  EXPECT_EQ(NamesOf(wire::Role::kWorker, {1}), "worker 1");
  EXPECT_EQ(NamesOf(wire::Role::kServer, {0, 1}), "servers 0 and 1");
  EXPECT_EQ(NamesOf(wire::Role::kServer, {0, 1, 4}), "servers 0, 1 and 4");
}

}  // namespace
}  // namespace cairn::cluster
