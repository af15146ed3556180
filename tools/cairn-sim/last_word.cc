#include "last_word.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "launcher.h"
#include "scheduler_process.h"
#include "worker_process.h"
#include "world.h"

namespace cairn::sim {

namespace {
constexpr int64_t kAwayUs = 12'000'000;
// Two heartbeats until workers compare, and some more for two hops and for connections to new servers.
constexpr int64_t kComparedUs = 10'000'000;
constexpr uint64_t kSeedOfThis = 1455;

// Nodes that the state names, and what each of them has.
struct Held {
  std::string who;
  StateVersion version;
};
}  // namespace

LastWord::LastWord(World& world) : world_(world), random_(Mix64(world.plan().seed, kSeedOfThis)) {}

void LastWord::OnRecord() {
  if (struck_ || !world_.plan().last_word || !world_.healed() || world_.schedulers()[0] == nullptr) return;
  const wire::ClusterState& state = world_.context().durable;
  if (state.phase != wire::Phase::kRunning) return;
  struck_ = true;
  const int process = world_.schedulers()[0]->process();
  world_.fabric().DieAfterSends(process, 1 + random_.Below(state.servers.size() + state.workers.size()),
                                [this, process] {
                                  const auto& now = world_.schedulers()[0];
                                  if (now != nullptr && now->process() == process) Die();
                                });
}

void LastWord::Die() {
  world_.faults().Add(Fault::kSchedulerCrash);
  world_.Log("last word", "the scheduler ends and stays away");
  world_.KillScheduler(0, kAwayUs);
  world_.queue().After(kComparedUs, [this] { Compare(); });
}

void LastWord::Compare() {
  Context& context = world_.context();
  if (context.durable.phase != wire::Phase::kRunning) return;
  std::vector<Held> all;
  StateVersion newest;
  bool workers = false;              // without one nobody passes anything on, and nobody waits
  Incarnation oldest{UINT64_MAX};    // of the workers
  std::set<uint64_t> living, known;  // servers, by incarnation; those that some worker knows
  for (const auto& [name, shard] : context.shards)
    if (!context.dead.contains(name)) living.insert(name.incarnation);
  for (uint32_t number : world_.launcher().Running()) {
    const client::ClientCore& core = world_.launcher().Find(number)->core();
    const wire::WorkerInfo* worker = context.durable.FindWorker(core.incarnation());
    if (worker == nullptr || worker->join_view.value == 0 || !core.fatal().ok()) continue;
    if (core.state()->phase != wire::Phase::kRunning) continue;  // it knows no shards to ask yet
    // Nor does one whose servers have all been replaced: their successors don't know it for theirs.
    if (std::ranges::none_of(core.state()->servers,
                             [&](const auto& server) { return living.contains(server.incarnation.value); }))
      continue;
    workers = true;
    oldest = std::min(oldest, core.incarnation());
    for (const wire::ServerInfo& server : core.state()->servers) known.insert(server.incarnation.value);
    all.push_back({"worker " + std::to_string(number), core.state()->version});
  }
  for (const auto& [name, shard] : context.shards) {
    const wire::ServerInfo* server = context.durable.FindServer(name.server);
    if (context.dead.contains(name) || server == nullptr || server->incarnation.value != name.incarnation)
      continue;
    // One that has just come: no worker knows it, so nobody can ask it.
    if (!known.contains(name.incarnation) || shard->version() == StateVersion{}) continue;
    // And one that has not heard of any worker yet lets none in.
    const auto& state = context.shard_states[name];
    if (state == nullptr || state->next_incarnation <= oldest) continue;
    all.push_back({"server " + std::to_string(name.server) + " thread " + std::to_string(name.thread),
                   shard->version()});
  }
  if (!workers) return;
  for (const Held& held : all) newest = std::max(newest, held.version);
  if (all.size() > 1) context.deeds.Add(Deed::kLastWord);
  for (const Held& held : all) {
    if (held.version < newest)
      context.report("passed-on", held.who + " has state " + std::to_string(held.version.value) +
                                      " long after somebody got " + std::to_string(newest.value) +
                                      " from a scheduler that is gone");
  }
}

}  // namespace cairn::sim
