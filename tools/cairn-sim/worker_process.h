// A simulated worker process: drives client::ClientCore and runs a program of several lanes, which
// are to it what threads of a trainer are. It ends by leaving the job, by an error that its core
// has ended with, or by being killed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/random.h"
#include "caller_side.h"
#include "client/protocol/client_core.h"
#include "lane.h"
#include "transport/sim/fabric.h"
#include "world.h"

namespace cairn::sim {

class WorkerProcess final : public PortHandler, public client::ClientObserver {
 public:
  WorkerProcess(World& world, uint32_t number, int32_t wanted_rank, bool short_life);
  ~WorkerProcess() override;
  void Start();

  World& world() { return world_; }
  client::ClientCore& core() { return *core_; }
  int process() const { return process_; }
  uint32_t number() const { return number_; }
  Random& random() { return random_; }
  bool registered() const { return core_ != nullptr && core_->incarnation().value != 0; }
  size_t calls_under_way() const { return calls_; }
  std::string WhatItDoes() const;

  // For the lanes. `done` runs after the call has ended, from the event queue.
  void Submit(client::Request request, CallEnd end, std::shared_ptr<CallData> data,
              std::function<void(const Status&)> done);
  // The same for calls that a lane begins itself (callers()): one begins, and what is returned ends it.
  CallerSide::Ended CallBegins(CallEnd end, std::shared_ptr<CallData> data,
                               std::function<void(const Status&)> done);
  CallerSide& callers() { return *callers_; }
  // A lane's caller: that of the trainer, which has calls of several tables in one trip, or one of its own.
  client::CallerId trainer() const { return client::CallerId{1}; }
  client::CallerId NewCaller() { return client::CallerId{++callers_made_}; }
  uint64_t NewCall() { return world_.NewCall(); }
  void CreateTable(const TableSpec& spec, int64_t timeout_us, bool churned,
                   std::function<void(Result<wire::TableInfo>)> done);
  void DropTable(const std::string& name, int64_t timeout_us, std::function<void(const Status&)> done);
  void Barrier(std::function<void(const Status&)> done);
  void Later(int64_t delay_us, std::function<void()> action);
  // Some lane has done its share, or stands between two calls while the worker wants to leave.
  void OnLaneProgress();
  // No more rounds are started: it is about to leave.
  bool leaving() const { return leaving_; }
  int64_t Deadline() const { return world_.now_us() + kCallTimeoutUs * world_.plan().patience; }

  void OnConnected(ConnId conn) override;
  void OnMessage(ConnId conn, wire::InFrame& frame) override;
  void OnDisconnect(ConnId conn) override;
  uint64_t MostAnswerBytes(ConnId conn, const wire::FrameHeader& header) const override {
    return core_->MostBodyBytes(conn, header);
  }
  void OnAcknowledged(SlotId slot, Incarnation incarnation, Seq seq) override;
  void OnRoundAcknowledged(Incarnation incarnation, TableId table, Round round,
                           const Status& outcome) override;
  void OnClockBegins(Incarnation incarnation, TableId table, Round start) override {
    world_.Tell([&](Checker& c) { c.OnClockBegins(incarnation, table, start); });
  }
  void OnRead(SlotId slot, Incarnation incarnation, TableId table, Position position,
              const std::byte* to) override;

  uint64_t uid() const { return uid_; }

  // Longer than any call may take after the heal. Only a worker that has missed the end of the job
  // may meet it: there is nobody left to tell it.
  static constexpr int64_t kCallTimeoutUs = 90'000'000;

  // The program closes its client, whatever is under way, if faults still last.
  void CloseClient();

 private:
  void Tick();
  void MaybeClose();  // now and then
  void AfterCall();
  void OnStarted(const Status& status);
  void CreateAll();
  void CreateNext();
  void StartLanes();
  void TryToLeave();
  void OnFatal();
  void End(CallEnd end, const Status& status);
  void Exit(const Status& status);

  World& world_;
  uint32_t number_;
  int32_t wanted_rank_;
  bool short_life_;
  Random random_;
  int process_;
  Port* port_;
  std::unique_ptr<client::ClientCore> core_;
  std::vector<wire::TableInfo> tables_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::map<uint32_t, Position> acknowledged_;  // highest position of ours that is acknowledged, per slot
  size_t calls_ = 0;
  std::unique_ptr<CallerSide> callers_;
  uint64_t callers_made_ = 1;
  std::map<const std::byte*, CallData*> read_into_;  // arrays of push-pulls under way, by their beginning
  bool leaving_ = false, leave_sent_ = false, exited_ = false, fatal_seen_ = false;
  bool waits_for_the_end_ = false;  // has nothing to do until every slot has its owners
  uint64_t uid_ = 0;
  Term term_;
  StateVersion version_;  // of the state that checkers have seen
  uint64_t barriers_entered_ = 0;
};

}  // namespace cairn::sim
