// What `cairn scale` asks for, and servers that come on their own accord (rules/server_count.h). One thread.
#pragma once

#include <cstdint>

#include "base/log.h"
#include "scheduler/core/connections.h"
#include "scheduler/core/journal.h"
#include "scheduler/core/owner_news.h"

namespace cairn::scheduler {

class Scale {
 public:
  // `replicas`: as the user asked for them.
  Scale(uint32_t replicas, Journal& journal, Connections& connections, const OwnerNews& news,
        const LogLine& log)
      : replicas_(replicas), journal_(journal), connections_(connections), news_(news), log_(log) {}

  // True: it is done, and the caller may be told the status.
  bool OnScale(ConnId conn, const wire::Scale& scale);
  // A server more than expected has come to stay.
  void ExpectJoined(DurableState& next) const;

 private:
  const uint32_t replicas_;
  Journal& journal_;
  Connections& connections_;
  const OwnerNews& news_;
  const LogLine& log_;
};

}  // namespace cairn::scheduler
