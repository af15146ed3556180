// What a worker waits for, and whom for, in words: for log lines, and for calls that end at their deadline.
// Reads the record of a request, the scheduler's last words and the links; changes nothing. The core's
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/links/links.h"
#include "client/links/scheduler_link.h"
#include "client/protocol/request_table.h"

namespace cairn::client {

class WaitingWords {
 public:
  WaitingWords(const SchedulerLink& scheduler, const Links& links) : scheduler_(scheduler), links_(links) {}

  // "a push to table "w"", "round 3 of table "w""
  std::string WhatOf(const RequestRecord& record) const;
  // "ranks 1, 3 are missing", "no answer from server 1 thread 0 at …"
  std::string AwaitedBy(const RequestRecord& record, int64_t now_us) const;
  // "rank 0 waits for …: …"
  std::string LineOf(const RequestRecord& record, int64_t now_us) const;
  // "rank 0 "
  std::string Who() const;
  // What the start of the client waits for; empty if for nothing. `in_view`: the scheduler has let it in.
  std::string StartAwaits(bool in_view, int64_t now_us) const;

 private:
  // Of those that the record waits for, the ones in a barrier, as the scheduler last said.
  std::vector<uint32_t> MissingInBarrier(const RequestRecord& record) const;
  std::string NoAnswer(const RequestRecord& record, int64_t now_us) const;

  const SchedulerLink& scheduler_;
  const Links& links_;
};

}  // namespace cairn::client
