// The hunt for the planted bugs: with each switched on, seeds are tried until a named checker (or
// the liveness bound) reports it; the same seed must be clean without it.
#include <atomic>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <string>
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

// What caught the bug under this seed; empty if nothing did.
std::string TryToCatch(const PlantedBug& bug, uint64_t seed) {
  const Outcome with = RunSeed(seed, bug.bug, nullptr);
  if (with.clean()) return "";
  // A seed that is not clean without the bug proves nothing.
  return RunSeed(seed, planted::Bug::kNone, bug.bug, nullptr).clean() ? CaughtBy(with) : "";
}

// Seeds that caught bugs before, by the bugs' names. They still do unless traces have changed.
using KnownSeeds = std::map<std::string, uint64_t>;

KnownSeeds ReadKnownSeeds(const std::string& path) {
  KnownSeeds known;
  std::ifstream file(path);
  std::string name;
  for (uint64_t seed = 0; file >> name >> seed;) known[name] = seed;
  return known;
}

bool WriteKnownSeeds(const std::string& path, const KnownSeeds& known) {
  std::ofstream file(path);
  for (const auto& [name, seed] : known) file << name << ' ' << seed << '\n';
  return bool(file.flush());
}

std::optional<Catch> Hunt(const PlantedBug& bug, const KnownSeeds& known, const PlantedOptions& options) {
  uint64_t tried = 0;
  const auto caught = [&](uint64_t seed) -> std::optional<Catch> {
    ++tried;
    std::string by = TryToCatch(bug, seed);
    if (by.empty()) return std::nullopt;
    return Catch{std::move(by), seed, tried};
  };
  if (const auto it = known.find(bug.name); it != known.end()) {
    if (auto found = caught(it->second)) return found;
  }
  for (uint64_t i = 0; i < options.most_seeds; ++i) {
    if (auto found = caught(options.start + i)) return found;
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
  KnownSeeds known = ReadKnownSeeds(options.known);
  std::vector<std::optional<Catch>> found(std::size(kBugs));
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i = next++; i < std::size(kBugs); i = next++) {
      if (options.only.empty() || options.only == kBugs[i].name) found[i] = Hunt(kBugs[i], known, options);
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
      known[kBugs[i].name] = found[i]->seed;
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
  if (options.remember && !WriteKnownSeeds(options.known, known)) {
    std::fprintf(stderr, "cairn-sim: can't write %s\n", options.known.c_str());
    return 2;
  }
  if (options.at_least == 0) return missed == 0 ? 0 : 1;
  std::printf("at least %llu have to be caught within %llu seeds each\n",
              static_cast<unsigned long long>(options.at_least),
              static_cast<unsigned long long>(options.most_seeds));
  return std::size(kBugs) - static_cast<size_t>(missed) >= options.at_least ? 0 : 1;
}

}  // namespace cairn::sim
