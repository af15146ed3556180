// One simulated cluster under one seed: its processes, its network, its disk, whatever goes wrong,
// and the checkers that watch. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/random.h"
#include "checker.h"
#include "plan.h"
#include "sim_store.h"
#include "transport/sim/event_queue.h"
#include "transport/sim/fabric.h"
#include "transport/sim/faults.h"
#include "transport/sim/trace.h"

namespace cairn::sim {

class SchedulerProcess;
class ServerKeeper;
class SimEtcd;
class WorkerProcess;
class Launcher;
class Chaos;
class LastWord;
class MemoryFaults;

struct Violation {
  std::string checker;
  std::string what;
  int64_t at_us = 0;
};

// What a run came to.
struct Outcome {
  uint64_t seed = 0;
  std::vector<Violation> violations;  // the first few
  bool stuck = false;
  std::string stuck_why;
  uint64_t trace_hash = 0;
  FaultCounts faults;
  DeedCounts deeds;
  uint64_t view_changes = 0, rounds = 0, acknowledged = 0, refused = 0, reads = 0, restarts = 0, events = 0;
  uint64_t failed_jobs = 0, settled_jobs = 0;
  uint64_t promotions = 0;  // of slots, handed over or after a death
  uint64_t lines_cut = 0;   // of these, with operations that thereby never happened
  int64_t virtual_us = 0;
  bool clean() const { return violations.empty() && !stuck; }
};

// Hosts: schedulers, servers' machines, the launcher, workers.
inline int SchedulerHost(uint32_t number) { return static_cast<int>(number); }
inline int ServerHost(uint32_t machine) { return 10 + static_cast<int>(machine); }
inline int WorkerHost(uint32_t number) { return 100 + static_cast<int>(number); }
inline constexpr int kLauncherHost = 99;
inline constexpr char kEtcdPrefix[] = "/sim";

class World final : public Tap {
 public:
  World(const Plan& plan, std::FILE* trace_out);
  ~World() override;
  Outcome Run();

  // For the processes.
  const Plan& plan() const { return plan_; }
  EventQueue& queue() { return queue_; }
  int64_t now_us() const { return queue_.now_us(); }
  Fabric& fabric() { return fabric_; }
  BufferPool& pool() { return pool_; }
  Context& context() { return context_; }
  Random& random() { return random_; }
  FaultCounts& faults() { return outcome_.faults; }
  SimStore& store() { return *store_; }
  Outcome& outcome() { return outcome_; }
  Launcher& launcher() { return *launcher_; }
  ServerKeeper& keeper() { return *keeper_; }
  const std::vector<std::unique_ptr<SchedulerProcess>>& schedulers() const { return schedulers_; }
  // A record has been written that nobody was told of: it may count, or not.
  bool log_uncertain() const { return store_ && store_->uncertain(); }
  SimEtcd* etcd() { return etcd_.get(); }  // null: the scheduler has a log on a disk
  MemoryFaults& memory_faults() { return *memory_faults_; }
  bool healed() const { return healed_; }
  // Every server is healthy, every slot has its owners, and nobody comes who would get some of them.
  bool AllIsWell() const;
  // The job may end: under some seeds only when every slot has all of its owners again.
  bool MayEnd() const { return !plan_.settle || settled_ || context_.durable.phase != wire::Phase::kRunning; }
  std::vector<wire::Endpoint> scheduler_endpoints() const;
  wire::Endpoint server_endpoint(uint32_t machine) const {
    return {"server" + std::to_string(machine), static_cast<uint16_t>(8000 + machine)};
  }
  uint64_t NewCall() { return ++calls_; }
  uint64_t NewUid() { return Mix64(plan_.seed, ++uids_); }
  void Log(const std::string& who, const std::string& line);
  // Every checker in turn.
  template <class Call>
  void Tell(Call call) {
    for (auto& checker : checkers_) call(*checker);
  }

  // A scheduler that has been killed, or has left of its own will.
  void KillScheduler(uint32_t number, bool restart);
  void KillScheduler(uint32_t number, int64_t restart_after_us);
  void OnSchedulerLeft(SchedulerProcess& scheduler);
  // The process waits in the middle of a call; the world goes on around it.
  void RunAround(int process, int64_t us);

  // What shards do (world_events.cc).
  void TellOperation(Op op);
  void TellUndecided(const PushEvent& event, uint64_t epoch);
  void TellStaged(uint64_t epoch, StagedPart part);
  // `goes_on`: it is the primary as before, and has missed that somebody else was.
  void TellPromoted(const ShardName& shard, SlotId slot, uint64_t epoch, Position held, bool goes_on);

  void Dispose(std::function<void()> owner_of_the_dead) {
    graveyard_.push_back(std::move(owner_of_the_dead));
  }

  void OnSend(const Port& from, const Port* to, const wire::FrameHeader& header,
              std::span<const std::byte> body) override;
  void OnCoded(wire::Coding coding) override;
  void OnUnreadable(const std::string& from, const std::string& to, const Status& why) override {
    context_.report("wire", to + " can't read what " + from + " sends: " + why.ToString());
  }

 private:
  void StartScheduler(uint32_t number);
  void TellLine(const Op& op);
  void Replay(SlotId slot);
  void OnMoment();
  std::string Misplaced() const;
  void OnDurable(std::span<const std::byte> record);
  scheduler::MemoryDisk::Fate DiskFate(bool sync);
  std::unique_ptr<SimStore> MakeStore();
  void Heal();
  bool SchedulersGone() const;
  bool Over() const;
  std::string WhoIsLeft() const;

  const Plan plan_;
  Outcome outcome_;
  Trace trace_;
  EventQueue queue_;
  BufferPool pool_;
  Random random_;
  Fabric fabric_;
  Context context_;
  std::vector<std::unique_ptr<Checker>> checkers_;
  std::unique_ptr<SimStore> store_;
  std::unique_ptr<SimEtcd> etcd_;
  std::vector<std::unique_ptr<SchedulerProcess>> schedulers_;  // null: it is not running
  std::unique_ptr<ServerKeeper> keeper_;
  std::unique_ptr<Launcher> launcher_;
  std::unique_ptr<Chaos> chaos_;
  std::unique_ptr<MemoryFaults> memory_faults_;
  std::unique_ptr<LastWord> last_word_;
  std::vector<std::function<void()>> graveyard_;      // keeps what died in mid-call until the end
  std::map<uint64_t, wire::ClusterState> told_from_;  // durable states, by version, not very old
  bool healed_ = false;
  bool settled_ = false;
  int64_t owners_changed_us_ = 0;
  bool scheduler_left_ = false;
  int64_t left_us_ = 0;         // the first of them
  bool replaced_left_ = false;  // one of them while another one led
  uint64_t uids_ = 0, calls_ = 0;
};

}  // namespace cairn::sim
