// The callers' side of a simulated worker's client, which client/runtime is in the real one: calls get to the
// core by the same gate, in the same trips, behind the same bound, as the same requests. Where a real
// caller's thread would wait, a continuation does.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/random.h"
#include "client/protocol/byte_bound.h"
#include "client/protocol/call_gate.h"
#include "client/protocol/push_pull.h"
#include "client/protocol/room_wait.h"
#include "client/protocol/table_calls.h"

namespace cairn::sim {

class WorkerProcess;

class CallerSide final : private client::CallGate::Way, private client::TableCalls::Driver {
 public:
  using Ended = std::function<void(const Status&)>;
  using Go = std::function<void()>;

  explicit CallerSide(WorkerProcess& worker);

  // A caller does one thing after the other: `action` runs when what it did before has called its Go.
  void Do(client::CallerId caller, std::function<void(Go)> action);

  // The rest is for what a caller does.
  // It waits for room at the bound. `then` is told, at once or later, whether it has it.
  void Reserve(client::CallerId caller, uint64_t bytes, int64_t deadline_us, Ended then);
  void FreeReserved(uint64_t bytes) { FreeRoom(bytes); }
  void Begin(client::CallerId caller, client::Request request, const client::TableCalls::Terms& terms,
             const Ended& ended);
  // One push in several requests; `go` runs when all are handed over, which takes its time.
  void BeginParts(client::CallerId caller, std::vector<client::Request> parts, uint64_t whole,
                  const client::TableCalls::Terms& terms, Ended ended, Go go);
  struct Both {
    client::Request push, pull;
    int64_t deadline_us = 0;
    uint64_t reserved = 0;
    std::function<Result<client::Request>()> prepare_pull;
  };
  void BeginPushPull(client::CallerId caller, Both both, const Ended& ended);
  // Calls of this caller are collected for so long, or until it needs one of them to be sent.
  void OpenTrip(client::CallerId caller, int64_t for_us);

  // No call is taken any more, and those that wait end. False if it was closed before.
  bool Close(const Status& why);
  bool closed() const { return !gate_.closed().ok(); }
  // Some caller has a trip open: calls that it has begun may not have been sent yet.
  bool trip_open() const { return open_trips_ > 0; }

 private:
  class PushPullRun;
  struct Caller {
    bool busy = false;
    std::deque<std::function<void(Go)>> next;
  };
  struct Waiter {
    client::CallerId caller;
    uint64_t bytes = 0;
    client::RoomWait wait;
    Ended then;
  };
  struct Parts {
    client::CallerId caller;
    std::vector<client::Request> left;  // the next one is the last of them
    std::shared_ptr<client::SplitPush> split;
    client::TableCalls::Terms terms;
    Ended ended;
    Go go;
  };

  void RunNext(client::CallerId caller);
  void Retry(uint64_t waiter);
  void WakeAll();
  void EndWait(uint64_t waiter, const Status& outcome);
  void MayCloseWithin(int64_t us);
  void TookRoom(uint64_t bytes);
  void NextPart(const std::shared_ptr<Parts>& parts);
  Status Post(client::CallerId caller, TableId table, Call<void()> call);

  void Post(Call<void()> call) override;
  void Post(client::OpenTrip::Calls calls) override;

  client::ClientCore& core() override;
  int64_t NowUs() const override;
  uint64_t trip() const override { return running_.number(); }
  void OnBegun() override {}
  void OnSubmitted() override {}
  void OnEnded() override {}
  void Disown(const client::WeakFrames&) override {}
  void FreeRoom(uint64_t bytes) override;

  WorkerProcess& worker_;
  Random random_;
  client::ByteBound room_;
  client::CallGate gate_{*this};
  client::RunningTrip running_;
  client::TableCalls calls_{*this};
  std::map<client::CallerId, Caller> callers_;
  std::map<uint64_t, Waiter> waiting_;  // at the bound
  uint64_t waiters_ = 0;                // so far
  std::set<uint32_t> tables_in_trip_;
  uint32_t in_trip_ = 0;  // calls that were begun in a trip and not sent yet
  uint32_t open_trips_ = 0;
  uint32_t between_parts_ = 0;  // pushes of which some parts are handed over
};

}  // namespace cairn::sim
