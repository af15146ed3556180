// The seat of a scheduler: alone in its job, or one of several of which one leads at a time. Who is answered
// and who is sent away, when a reign ends, and when the process is over. No I/O, no clock of its own; driven
// by the scheduler's node and by the simulator. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/buffer.h"
#include "base/ids.h"
#include "base/log.h"
#include "cairn/status.h"
#include "scheduler/core/known_connections.h"
#include "scheduler/core/leadership.h"
#include "scheduler/core/scheduler.h"
#include "transport/network.h"
#include "wire/frame.h"

namespace cairn::scheduler {

class SchedulerSeat {
 public:
  class Driver {
   public:
    virtual ~Driver() = default;
    virtual int64_t NowUs() const = 0;
    // The candidate is to stand for election again, or not to until then.
    virtual void Stand() = 0;
    virtual void StandBack() = 0;
    // It has resigned: this scheduler and its store are no more.
    virtual void EndReign(std::unique_ptr<Scheduler> scheduler) = 0;
    // The process is over. `at_once`: nothing may be told any more, what was not sent least of all.
    virtual void OnOver(const Status& why, bool at_once) = 0;
    // Its end has come in the middle of a call; only in the simulator.
    virtual bool dead() const { return false; }
  };
  struct Options {
    bool several = false;  // it leads when its candidate has won
    int64_t lost_after_us = 60'000'000;
  };
  // All outlive it.
  SchedulerSeat(const Options& options, Network& network, BufferPool& pool, const LogLine& log,
                Driver& driver)
      : options_(options),
        network_(network),
        pool_(pool),
        log_(log),
        driver_(driver),
        leadership_(options.lost_after_us) {}

  // What its candidate says (metastore/candidacy.h).
  void OnStandby(const std::string& leader);
  void OnEtcd(bool heard);
  void OnLost(const Status& why) { EndNow(why); }
  // It is to lead, from now on with this scheduler. With several: the candidate has won.
  void Lead(std::unique_ptr<Scheduler> scheduler);
  // The same, while the scheduler is being started: what etcd says from now on is about this reign.
  void OnWon() { leadership_.OnWon(); }
  // It can't lead.
  void OnNotStarted(const Status& why) { EndNow(why); }

  void OnMessage(ConnId conn, const wire::InFrame& frame);
  void OnDisconnect(ConnId conn);
  void OnTick();
  // When the next tick is due, at most `most_us` away.
  int64_t NextTickUs(int64_t most_us) const;
  // Told to stop.
  void Stop() { End(Status::Ok()); }

  bool leads() const { return scheduler_ != nullptr; }
  // It leads, and whoever asks is answered by the scheduler.
  bool answers() const { return leads() && (!options_.several || leadership_.answers()); }
  bool resigned() const { return leadership_.resigned(); }
  const Scheduler* scheduler() const { return scheduler_.get(); }  // null: it does not lead
  bool over() const { return result_.has_value(); }
  const Status& result() const { return *result_; }  // requires over()
  // As the job ended, for `cairn run`; empty if it has not.
  const std::string& final_status() const { return final_status_; }

 private:
  template <class Function>
  void Call(Function function);
  void SendAway(ConnId conn);
  void Resign();
  void LookForEnd();
  void EndNow(const Status& why);
  void End(const Status& why);

  const Options options_;
  Network& network_;
  BufferPool& pool_;
  const LogLine& log_;
  Driver& driver_;
  std::unique_ptr<Scheduler> scheduler_;
  std::string leader_;            // while standing by: where the leader is, empty if that is not known
  Leadership leadership_;         // of several
  KnownConnections connections_;  // of several
  std::optional<Status> result_;
  std::string final_status_;
};

}  // namespace cairn::scheduler
