// The hunt for the planted bugs: with each switched on, seeds are tried until a named checker (or
// the liveness bound) reports it; the same seed must be clean without it.
#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "seeds.h"

namespace cairn::sim {

namespace {

constexpr PlantedBug kBugs[] = {
#define CAIRN_PLANTED(name, rule, text) {planted::Bug::name, #name, rule, text},
#include "base/planted_bugs.inc"
#undef CAIRN_PLANTED
};

struct Catch {
  std::string by;
  uint64_t seed = 0;
  uint64_t tried = 0;
};

std::string CaughtBy(const Outcome& outcome) {
  if (!outcome.violations.empty()) return outcome.violations[0].checker;
  return outcome.stuck ? "liveness" : "";
}

std::optional<Catch> Hunt(const PlantedBug& bug, const PlantedOptions& options) {
  for (uint64_t i = 0; i < options.most_seeds; ++i) {
    const uint64_t seed = options.start + i;
    const Outcome with = RunSeed(seed, bug.bug, nullptr);
    if (with.clean()) continue;
    // A seed that is not clean without the bug proves nothing.
    if (!RunSeed(seed, planted::Bug::kNone, bug.bug, nullptr).clean()) continue;
    return Catch{CaughtBy(with), seed, i + 1};
  }
  return std::nullopt;
}

}  // namespace

const PlantedBug* FindBug(const std::string& name) {
  for (const PlantedBug& bug : kBugs) {
    if (name == bug.name) return &bug;
  }
  return nullptr;
}

int RunPlantedBugs(const PlantedOptions& options) {
  std::vector<std::optional<Catch>> found(std::size(kBugs));
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i = next++; i < std::size(kBugs); i = next++) {
      if (options.only.empty() || options.only == kBugs[i].name) found[i] = Hunt(kBugs[i], options);
    }
  };
  const unsigned cores =
      options.threads > 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < cores; ++i) threads.emplace_back(work);
  for (auto& thread : threads) thread.join();

  std::printf("%-24s| %-14s| %-18s| %8s | %s\n", "bug", "rule", "caught by", "seed", "seeds tried");
  int missed = 0;
  for (size_t i = 0; i < std::size(kBugs); ++i) {
    if (!options.only.empty() && options.only != kBugs[i].name) continue;
    if (found[i]) {
      std::printf("%-24s| %-14s| %-18s| %8llu | %llu\n", kBugs[i].name, kBugs[i].rule, found[i]->by.c_str(),
                  static_cast<unsigned long long>(found[i]->seed),
                  static_cast<unsigned long long>(found[i]->tried));
    } else {
      ++missed;
      std::printf("%-24s| %-14s| NOT CAUGHT: %s\n", kBugs[i].name, kBugs[i].rule, kBugs[i].text);
    }
  }
  std::printf("planted bugs: %zu  not caught: %d\n", options.only.empty() ? std::size(kBugs) : size_t{1},
              missed);
  if (options.at_least == 0) return missed == 0 ? 0 : 1;
  std::printf("at least %llu have to be caught within %llu seeds each\n",
              static_cast<unsigned long long>(options.at_least),
              static_cast<unsigned long long>(options.most_seeds));
  return std::size(kBugs) - static_cast<size_t>(missed) >= options.at_least ? 0 : 1;
}

}  // namespace cairn::sim
