// A server's control side under test: a network that only records, and a scheduler that says exactly what
// a test wants. Server 3, incarnation 5, with two threads.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/control/server_control.h"
#include "server/shard/shard_harness.h"

namespace cairn::server {

class Control : public ::testing::Test {
 protected:
  Control() : net(pool) {
    options.scheduler = {"sched", 7000};
    options.endpoint = {"host", 1};
    options.threads = 2;
    options.uid = 77;
    Start();
  }
  void Start() {
    control = ServerControl::Make(
        options, net, pool,
        {[&](uint32_t index, Incarnation incarnation) { registered.emplace_back(index, incarnation); },
         [&](std::shared_ptr<const wire::ClusterState> state) { states.push_back(state->version); }},
        [&](const std::string& line) { lines.push_back(line); }, now);
  }
  ConnId conn() const { return ConnId{1000 + net.connects}; }
  void Tick(int64_t step_us) {
    now += step_us;
    control->OnTick(now);
  }
  void Tell(const wire::ControlMessage& message) {
    Buffer bytes = wire::Flatten(*wire::EncodeControl(message, pool), pool);
    Result<wire::InFrame> frame = wire::Parse(bytes.bytes(), wire::kMaxBodyBytes, pool);
    ASSERT_TRUE(frame.ok());
    control->OnMessage(conn(), *frame, now);
  }
  void Register() {
    control->OnConnected(conn(), now);
    Tell(wire::Registered{77, "test", Term{1}, Incarnation{5}, 3, 0});
  }
  wire::ClusterState State(uint64_t version, wire::Phase phase = wire::Phase::kRunning) {
    wire::ClusterState state;
    state.cluster_id = "test";
    state.term = Term{1};
    state.version = StateVersion{version};
    state.phase = phase;
    state.servers = {{0, Incarnation{5}, {"host", 1}, 2}};
    state.slots = {{0, 0, 1, StateVersion{1}}};
    return state;
  }
  void Report(uint64_t version, uint64_t other_version) {
    control->OnReports({{StateVersion{version}, {}, {}, {}}, {StateVersion{other_version}, {}, {}, {}}}, now);
  }
  template <class M>
  std::vector<M> Sent(ConnId on) {
    std::vector<M> found;
    for (const wire::InFrame& frame : net.sent[on]) {
      auto message = wire::DecodeControl(frame.header, frame.body());
      if (auto* m = std::get_if<M>(&*message)) found.push_back(*m);
    }
    return found;
  }
  template <class M>
  std::vector<M> Sent() {
    return Sent<M>(conn());
  }

  BufferPool pool;
  RecordingNetwork net;
  ServerControlOptions options;
  std::unique_ptr<ServerControl> control;
  std::vector<std::pair<uint32_t, Incarnation>> registered;
  std::vector<StateVersion> states;
  std::vector<std::string> lines;
  int64_t now = 0;
};

}  // namespace cairn::server
