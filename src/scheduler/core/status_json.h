// What `cairn status` shows: the cluster as one JSON object. It only looks. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "scheduler/core/awaiting.h"
#include "scheduler/core/barriers.h"
#include "scheduler/core/connections.h"
#include "scheduler/core/journal.h"
#include "scheduler/core/load_reports.h"
#include "scheduler/core/owner_news.h"
#include "scheduler/core/placer.h"
#include "scheduler/core/presence.h"
#include "scheduler/core/state_teller.h"

namespace cairn::scheduler {

struct StatusSources {
  int64_t lost_after_us;
  const Journal& journal;
  const Connections& connections;
  const Presence& presence;
  const StateTeller& teller;
  Barriers& barriers;
  Awaiting& awaiting;
  const LoadReports& loads;
  const Placer& placer;
  const OwnerNews& news;
};

std::string StatusJson(const StatusSources& from, int64_t now_us);

}  // namespace cairn::scheduler
