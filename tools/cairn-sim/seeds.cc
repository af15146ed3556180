#include "seeds.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "plan.h"

namespace cairn::sim {

namespace {

constexpr uint64_t kLeastAcknowledged = 200;  // per seed, on average
// With fewer seeds than this some kinds of fault or deed may rightly not have happened.
constexpr uint64_t kSeedsForEveryKind = 200;
constexpr uint64_t kSeedsBetweenLines = 1000;  // of progress, where no terminal shows it

unsigned Cores(unsigned wanted) {
  return wanted > 0 ? wanted : std::max(1u, std::thread::hardware_concurrency());
}

struct Totals {
  uint64_t seeds = 0, violations = 0, stuck = 0, failed_jobs = 0;
  uint64_t view_changes = 0, rounds = 0, acknowledged = 0, reads = 0, restarts = 0, events = 0;
  int64_t virtual_us = 0;
  FaultCounts faults;
  DeedCounts deeds;

  void Add(const Outcome& o) {
    ++seeds;
    violations += !o.violations.empty();
    stuck += o.stuck;
    failed_jobs += o.failed_jobs;
    view_changes += o.view_changes;
    rounds += o.rounds;
    acknowledged += o.acknowledged;
    reads += o.reads;
    restarts += o.restarts;
    events += o.events;
    virtual_us += o.virtual_us;
    faults += o.faults;
    deeds += o.deeds;
  }
};

void PrintFindings(const Outcome& o) {
  for (const Violation& v : o.violations) {
    std::printf("seed %llu: %s at %.6f s: %s\n", static_cast<unsigned long long>(o.seed), v.checker.c_str(),
                static_cast<double>(v.at_us) / 1e6, v.what.c_str());
  }
  if (o.stuck) {
    std::printf("seed %llu: stuck: %s\n", static_cast<unsigned long long>(o.seed), o.stuck_why.c_str());
  }
  if (!o.clean())
    std::printf("  replay: cairn-sim --seed %llu --trace\n", static_cast<unsigned long long>(o.seed));
  std::fflush(stdout);  // it may be hours from the end
}

int PrintTotals(const Totals& t) {
  auto line = [](const char* what, uint64_t n) {
    std::printf("%-26s %12llu\n", what, static_cast<unsigned long long>(n));
  };
  bool never = false;
  for (size_t i = 0; i < kFaultKinds; ++i) {
    line(Name(static_cast<Fault>(i)), t.faults.of[i]);
    never |= t.faults.of[i] == 0;
  }
  for (size_t i = 0; i < kDeedKinds; ++i) {
    line(Name(static_cast<Deed>(i)), t.deeds.of[i]);
    never |= t.deeds.of[i] == 0;
  }
  for (size_t i = 0; i < t.deeds.bounds.size(); ++i) {
    line(Name(static_cast<bounds::Bound>(i)), t.deeds.bounds[i]);
    never |= t.deeds.bounds[i] == 0;
  }
  line("view changes", t.view_changes);
  line("rounds (per slot)", t.rounds);
  line("acknowledged pushes", t.acknowledged);
  line("pulls", t.reads);
  line("worker restarts", t.restarts);
  line("jobs that failed", t.failed_jobs);
  line("events", t.events);
  std::printf("%-26s %12.0f s\n", "simulated time", static_cast<double>(t.virtual_us) / 1e6);
  int code = t.violations + t.stuck > 0 ? 1 : 0;
  if (never && t.seeds >= kSeedsForEveryKind) {
    std::printf("a kind of fault or deed never happened\n");
    code = 1;
  }
  if (t.acknowledged < kLeastAcknowledged * t.seeds) {
    std::printf("fewer than %llu acknowledged pushes per seed\n",
                static_cast<unsigned long long>(kLeastAcknowledged));
    code = 1;
  }
  std::printf("seeds: %llu  violations: %llu  stuck: %llu\n", static_cast<unsigned long long>(t.seeds),
              static_cast<unsigned long long>(t.violations), static_cast<unsigned long long>(t.stuck));
  return code;
}

}  // namespace

Outcome RunSeed(uint64_t seed, planted::Bug bug, std::FILE* trace_out) {
  return RunSeed(seed, bug, bug, trace_out);
}

Outcome RunSeed(uint64_t seed, planted::Bug bug, planted::Bug aim, std::FILE* trace_out) {
  planted::active = bug;
  Plan plan = MakePlan(seed);
  AimAt(aim, plan);
  Outcome outcome;
  {
    World world(plan, trace_out);
    outcome = world.Run();
  }
  planted::active = planted::Bug::kNone;
  return outcome;
}

namespace {

// What all threads add to.
class Results {
 public:
  explicit Results(const SeedsOptions& options) : options_(options) {
    if (options.trace_hashes) hashes_.resize(options.count);
  }

  void Add(uint64_t i, const Outcome& outcome) {
    const MutexLock lock(mutex_);
    totals_.Add(outcome);
    if (options_.trace_hashes) hashes_[i] = outcome.trace_hash;
    PrintFindings(outcome);
    if (terminal_ ? totals_.seeds % 16 != 0 : totals_.seeds % kSeedsBetweenLines != 0) return;
    std::fprintf(stderr, terminal_ ? "\r%llu of %llu seeds" : "%llu of %llu seeds\n",
                 static_cast<unsigned long long>(totals_.seeds),
                 static_cast<unsigned long long>(options_.count));
  }

  // When no thread adds any more. Returns the process's exit code.
  int Print() {
    const MutexLock lock(mutex_);
    if (terminal_) std::fprintf(stderr, "\r%-40s\r", "");
    for (size_t i = 0; i < hashes_.size(); ++i)
      std::printf("seed %llu  trace hash %016llx\n", static_cast<unsigned long long>(options_.start) + i,
                  static_cast<unsigned long long>(hashes_[i]));
    return PrintTotals(totals_);
  }

 private:
  const SeedsOptions options_;
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  Mutex mutex_;
  Totals totals_ CAIRN_GUARDED_BY(mutex_);
  std::vector<uint64_t> hashes_ CAIRN_GUARDED_BY(mutex_);  // by seed, if they are wanted
};

}  // namespace

int RunSeeds(const SeedsOptions& options) {
  Results results(options);
  std::atomic<uint64_t> next{0};
  auto work = [&] {
    for (uint64_t i = next++; i < options.count; i = next++)
      results.Add(i, RunSeed(options.start + i, planted::Bug::kNone, nullptr));
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < Cores(options.threads); ++i) threads.emplace_back(work);
  for (auto& thread : threads) thread.join();
  return results.Print();
}

}  // namespace cairn::sim
