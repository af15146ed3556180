// Many seeds: on all cores, with totals at the end; and the hunt for the planted bugs.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "base/planted.h"
#include "world.h"

namespace cairn::sim {

// One seed, with a bug switched on or with none. `aim`: the bug that the plan is made for (plan.h).
Outcome RunSeed(uint64_t seed, planted::Bug bug, std::FILE* trace_out);
Outcome RunSeed(uint64_t seed, planted::Bug bug, planted::Bug aim, std::FILE* trace_out);

struct SeedsOptions {
  uint64_t start = 1;
  uint64_t count = 100;
  unsigned threads = 0;  // 0: one per core
  bool trace_hashes =
      false;  // also print each seed's: equal before and after a change that should change nothing
};
// Prints what was found and the totals. Returns the process's exit code.
int RunSeeds(const SeedsOptions& options);

struct PlantedOptions {
  uint64_t start = 1;
  uint64_t most_seeds = 2000;  // per bug
  uint64_t at_least = 0;       // bugs that must be caught; 0: all
  std::string only;            // one bug by name; empty: all
  std::string known;           // file with seeds that caught them before: these are tried first
  bool remember = false;       // write those that catch them now into that file
  unsigned threads = 0;
};
int RunPlantedBugs(const PlantedOptions& options);

// Null if there is none of that name.
const struct PlantedBug* FindBug(const std::string& name);
struct PlantedBug {
  planted::Bug bug;
  const char* name;
  const char* rule;
  const char* text;
};

}  // namespace cairn::sim
