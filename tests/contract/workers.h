// For tests: a cluster inside this process, and its workers, each in a thread.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cairn/client.h"
#include "cairn/embedded.h"

namespace cairn::testing {

inline std::unique_ptr<EmbeddedCluster> Cluster(uint32_t servers = 2, uint32_t threads = 2,
                                                uint32_t workers = 3) {
  auto cluster =
      EmbeddedCluster::Start({.servers = servers, .workers = workers, .threads_per_server = threads});
  EXPECT_TRUE(cluster.ok()) << cluster.status().ToString();
  return std::move(cluster).value();
}

inline ClientOptions Quiet(const EmbeddedCluster& cluster, int32_t rank) {
  ClientOptions options = cluster.ClientOptionsFor(rank);
  options.log = [](const std::string&) {};
  options.connect_timeout_ms = 30'000;
  options.call_timeout_ms = 30'000;
  return options;
}

#define ASSERT_CAIRN_OK(expression)                                \
  do {                                                             \
    const Status status_of_call = (expression);                    \
    ASSERT_TRUE(status_of_call.ok()) << status_of_call.ToString(); \
  } while (false)

// Runs `work` as every worker of the cluster, each in a thread, then finishes.
inline void RunWorkers(const EmbeddedCluster& cluster, uint32_t workers,
                       const std::function<void(Client&)>& work) {
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      auto client = Client::Connect(Quiet(cluster, static_cast<int32_t>(rank)));
      ASSERT_TRUE(client.ok()) << client.status().ToString();
      EXPECT_EQ((*client)->rank(), rank);
      work(**client);
      ASSERT_CAIRN_OK((*client)->Finish());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace cairn::testing
