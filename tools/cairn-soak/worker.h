// One life of a soak worker: pushes numbered updates, keeps its account, and, as rank 0, compares
// everything with the servers' content at the end.
#pragma once

#include <cstdint>
#include <string>

#include "account.h"
#include "cairn/client.h"
#include "cairn/status.h"

namespace soak {

struct Options {
  std::string dir;  // the accounts lie here
  bool async = true, sync = true;
  uint64_t updates = 1000;       // of each kind, over all lives of a rank
  uint32_t keys = 32;            // rows that a sparse update touches
  uint32_t dense_groups = 2048;  // groups of four elements in the async dense table
  uint32_t in_flight = 16;       // async updates not yet acknowledged
  int64_t round_timeout_ms = 30'000;
  std::string until;        // not empty: goes on until this file exists, however many updates that is
  uint32_t lives = 16;      // of a rank at most, the same for all: the sync dense table has room for so many
  uint32_t region = 1024;   // elements in the sync dense table that a life writes to
  uint64_t ballast_mb = 0;  // of a table that is filled once and then only has to be there
  int64_t pause_us = 0;     // between updates, for a job of a certain length
};

// Runs until the job is done. kRetired or kOutcomeUnknown: the process was taken for dead; the
// caller may begin another life.
cairn::Status RunLife(const Options& options, const cairn::ClientOptions& client_options);

}  // namespace soak
