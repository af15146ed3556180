// A candidacy (metastore/candidacy.h) on a thread of its own, over the real etcd.
#pragma once

#include <memory>
#include <string>

#include "base/log.h"
#include "scheduler/metastore/candidacy.h"
#include "scheduler/metastore/etcd_options.h"

namespace cairn::scheduler {

class CandidateNode {
 public:
  // `address`: where this scheduler is, told to whoever asks. `listener` is called on the candidate's
  // thread, and must outlive it.
  static std::unique_ptr<CandidateNode> Start(EtcdOptions options, std::string address,
                                              Candidacy::Listener& listener, LogLine log);
  // It leads and should not: another one may lead, and this one is no candidate until Stand.
  virtual void Resign() = 0;
  virtual void Stand() = 0;
  // Resigns and ends the thread, within a second or two.
  virtual ~CandidateNode() = default;
};

}  // namespace cairn::scheduler
