// The records that move owners (rules 43 and 45 to 47): what servers say about their slots, those that want
// to leave, and what placement begins. All that can be done at one moment goes into one record, since the
// whole state is sent with each. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/log.h"
#include "scheduler/core/connections.h"
#include "scheduler/core/journal.h"
#include "scheduler/core/owner_news.h"
#include "scheduler/core/placer.h"
#include "scheduler/core/presence.h"
#include "scheduler/core/single_owners.h"
#include "scheduler/rules/server_count.h"

namespace cairn::scheduler {

class Moves {
 public:
  // `replicas`: as the user asked for them (rules/server_count.h).
  Moves(uint32_t replicas, Journal& journal, Connections& connections, const Presence& presence,
        OwnerNews& news, Placer& placer, SingleOwners& single_owners, const LogLine& log)
      : replicas_(replicas),
        journal_(journal),
        connections_(connections),
        presence_(presence),
        news_(news),
        placer_(placer),
        single_owners_(single_owners),
        log_(log) {}

  // A primary (index) that can't go on with a slot: nobody else may have more of it, so nobody is tried, and
  // the job ends. False: there is none.
  bool EndOverRuin(uint32_t server, const std::vector<wire::SlotNews>& news);
  // Cheap: it is asked at every tick and after every event.
  bool WorkWaits(int64_t now_us) const;
  // One record with all that can be done about owners now; false: there was nothing.
  bool Advance(int64_t now_us);
  // Between two looks a slot may stand still whose handing over could end.
  int64_t next_tick_us() const;

 private:
  struct Record;  // what is in it, for the log lines
  int64_t GapUs() const;
  ServerWishes Wishes(int64_t now_us) const;
  void MarkLeaving(DurableState& next, int64_t now_us, Record* record) const;
  void LetEmptyGo(DurableState& next, Record* record) const;
  void LogSlowButNeeded(const std::vector<uint32_t>& servers);
  void LogRecord(const Record& record);

  const uint32_t replicas_;
  Journal& journal_;
  Connections& connections_;
  const Presence& presence_;
  OwnerNews& news_;
  Placer& placer_;
  SingleOwners& single_owners_;
  const LogLine& log_;
  int64_t recorded_us_ = INT64_MIN / 2;
};

}  // namespace cairn::scheduler
