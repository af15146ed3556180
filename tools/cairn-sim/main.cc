// cairn-sim: whole clusters under a seed, with everything that can go wrong, and checkers that
// watch. docs/internals/simulation.md says how to read what it prints.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <string>

#include "growth.h"
#include "seeds.h"

namespace {

int RunOne(uint64_t seed, const std::string& bug_name, bool trace) {
  using namespace cairn;
  planted::Bug bug = planted::Bug::kNone;
  if (!bug_name.empty()) {
    const sim::PlantedBug* found = sim::FindBug(bug_name);
    if (found == nullptr) {
      std::fprintf(stderr, "no planted bug is named %s: src/base/planted_bugs.inc has the list\n",
                   bug_name.c_str());
      return 2;
    }
    bug = found->bug;
  }
  const sim::Outcome outcome = sim::RunSeed(seed, bug, trace ? stdout : nullptr);
  for (const sim::Violation& v : outcome.violations)
    std::printf("violation: %s: %s\n", v.checker.c_str(), v.what.c_str());
  if (outcome.stuck) std::printf("stuck: %s\n", outcome.stuck_why.c_str());
  std::printf("seed %llu  trace hash %016llx\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(outcome.trace_hash));
  return outcome.clean() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Simulates whole clusters under seeds, with faults, and checks every promise"};
  cairn::sim::SeedsOptions seeds;
  cairn::sim::PlantedOptions planted;
  uint64_t seed = 0;
  std::string bug;
  bool trace = false, hunt = false, growth = false;
  auto* count = app.add_option("--seeds", seeds.count, "how many seeds to run");
  app.add_option("--start", seeds.start, "the first of them")->needs(count);
  app.add_flag("--trace-hashes", seeds.trace_hashes,
               "print the hash of each seed's trace, in order, to compare two builds")
      ->needs(count);
  app.add_option("--threads", seeds.threads, "cores to use (all)");
  auto* one = app.add_option("--seed", seed, "run one seed and print the hash of its trace");
  app.add_flag("--trace", trace, "print the trace, too")->needs(one);
  app.add_flag("--planted-bugs", hunt, "switch on one planted bug after the other and catch each");
  app.add_option("--most-seeds", planted.most_seeds, "seeds to try per planted bug");
  app.add_option("--at-least", planted.at_least, "planted bugs that have to be caught (all)");
  auto* known = app.add_option("--known", planted.known,
                               "file with the seed that caught each planted bug before, to be tried first");
  app.add_flag("--remember", planted.remember, "write the seeds that catch them now into that file")
      ->needs(known);
  app.add_option("--bug", bug, "switch on this planted bug (with --seed or --planted-bugs)");
  app.add_flag("--growth", growth, "print how the scheduler's messages and bytes grow with the cluster");
  CLI11_PARSE(app, argc, argv);
  if (growth) return cairn::sim::RunGrowth();
  if (one->count() > 0) return RunOne(seed, bug, trace);
  if (hunt) {
    planted.only = bug;
    planted.threads = seeds.threads;
    return cairn::sim::RunPlantedBugs(planted);
  }
  return cairn::sim::RunSeeds(seeds);
}
