// A scheduler's standing among several, on a thread of its own: campaigns until it has won, then
// keeps its lease alive. What it says is a hint; what may be written is decided by EtcdStore.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/log.h"
#include "cairn/status.h"
#include "scheduler/metastore/etcd_options.h"

namespace cairn::scheduler {

class CandidateNode {
 public:
  // Called on the candidate's thread.
  struct Events {
    // Another one leads, at this address; or nobody yet (empty).
    std::function<void(const std::string& leader)> on_standby;
    // This one leads; the leader key was created in this revision. Again only after it has resigned.
    std::function<void(int64_t revision)> on_won;
    // While it leads. False: etcd has not answered for as long as the lease lasts, so another one
    // may lead by now. True: it has answered again, and the lease was still there.
    std::function<void(bool heard)> on_etcd;
    // It has led and does so no more. Nothing comes after this.
    std::function<void(Status why)> on_lost;
  };

  // `address`: where this scheduler is, told to whoever asks.
  static std::unique_ptr<CandidateNode> Start(EtcdOptions options, std::string address, Events events,
                                              LogLine log);
  // It leads and should not: another one may lead, and this one is no candidate until Stand.
  virtual void Resign() = 0;
  virtual void Stand() = 0;
  // Resigns and ends the thread, within a second or two.
  virtual ~CandidateNode() = default;
};

}  // namespace cairn::scheduler
