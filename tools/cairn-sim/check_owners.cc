// Owners: one primary per slot and epoch, promoted only from those in sync and with everything that
// was ever told; a primary that waits for all who are in sync; the same content in all of them; and,
// when faults are over, as many of them as there should be.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "checkers.h"

namespace cairn::sim {

namespace {

std::string OwnedWords(uint32_t slot, const wire::SlotOwner& owner) {
  return "slot " + std::to_string(slot) + ", epoch " + std::to_string(owner.epoch) + ", of server " +
         std::to_string(owner.server) + " thread " + std::to_string(owner.thread);
}

// Over all commands ever sent: what is on record and what was told.
class OneOwner final : public Checker {
 public:
  explicit OneOwner(Context& context) : Checker("one-owner", context) {}
  void OnDurable(const wire::ClusterState& state) override {
    Look(state, "is recorded");
    for (uint32_t s = 0; s < state.slots.size(); ++s) {
      if (state.slots[s].epoch < epochs_[s]) Violation(OwnedWords(s, state.slots[s]) + " goes back");
      epochs_[s] = state.slots[s].epoch;
    }
  }
  void OnControlSent(const Actor& from, const Actor*, const wire::ControlMessage& message) override {
    const auto* told = std::get_if<wire::StateMessage>(&message);
    if (from.role == wire::Role::kScheduler && told != nullptr) Look(told->state, "is told");
  }

 private:
  void Look(const wire::ClusterState& state, const char* how) {
    for (uint32_t s = 0; s < state.slots.size(); ++s) {
      const wire::SlotOwner& owner = state.slots[s];
      const wire::ServerInfo* server = state.FindServer(owner.server);
      if (server == nullptr) {
        Violation(OwnedWords(s, owner) + " " + how + ", and there is no such server");
        continue;
      }
      const ShardName name{owner.server, owner.thread, server->incarnation.value};
      auto [it, added] = owners_.try_emplace({s, owner.epoch}, name);
      if (!added && it->second != name)
        Violation(OwnedWords(s, owner) + " " + how + ", and it was " + ToString(it->second) + " before");
    }
  }
  std::map<std::pair<uint32_t, uint64_t>, ShardName> owners_;
  std::map<uint32_t, uint64_t> epochs_;
};

class Promotion final : public Checker {
 public:
  explicit Promotion(Context& context) : Checker("promotion", context) {}

  void OnDurable(const wire::ClusterState& state) override {
    for (uint32_t s = 0; s < before_.slots.size() && s < state.slots.size(); ++s)
      Compare(s, before_.slots[s], state.slots[s], state);
    before_ = state;
  }
  void OnControlSent(const Actor& from, const Actor*, const wire::ControlMessage& message) override {
    const auto* heartbeat = std::get_if<wire::Heartbeat>(&message);
    if (from.role != wire::Role::kServer || heartbeat == nullptr) return;
    for (const wire::SlotNews& news : heartbeat->news) {
      if (news.kind != wire::SlotNews::kCaughtUp) continue;
      caught_up_.insert({news.slot, news.epoch, news.server, news.added.value});
      CheckCaughtUp(news);
    }
  }
  // Before it does anything: it must have all that was told to anybody.
  void OnPromoted(const ShardName& shard, SlotId slot, uint64_t epoch, Position held) override {
    // One that hears of it late has a successor already, and can't acknowledge anything.
    if (epoch < context_.durable.slots[slot.value].epoch) return;
    const Position told = context_.told[slot.value];
    if (context_.history.Holds(slot, held, told)) return;
    Violation(ToString(shard) + " becomes primary of slot " + std::to_string(slot.value) + " under epoch " +
              std::to_string(epoch) + " with (" + std::to_string(held.epoch()) + ", " +
              std::to_string(held.index()) + "); (" + std::to_string(told.epoch()) + ", " +
              std::to_string(told.index()) + ") has been told to somebody");
  }

 private:
  // From now on it may be promoted.
  void CheckCaughtUp(const wire::SlotNews& news) {
    const wire::ClusterState& state = context_.durable;
    if (news.slot >= state.slots.size() || state.slots[news.slot].epoch != news.epoch) return;
    const wire::Backup* backup = state.slots[news.slot].FindBackup(news.server);
    const wire::ServerInfo* server = state.FindServer(news.server);
    if (backup == nullptr || backup->added != news.added || server == nullptr) return;
    const ShardName name{news.server, backup->thread, server->incarnation.value};
    const Position told = context_.told[news.slot];
    if (context_.history.Holds(SlotId(news.slot), context_.Received(name, SlotId(news.slot)), told)) return;
    Violation(ToString(name) + " is reported as caught up in slot " + std::to_string(news.slot) +
              " and does not have (" + std::to_string(told.epoch()) + ", " + std::to_string(told.index()) +
              "), which has been told to somebody");
  }
  void Compare(uint32_t slot, const wire::SlotOwner& old, const wire::SlotOwner& now,
               const wire::ClusterState& state) {
    if (old.epoch == now.epoch) {
      if (old.server != now.server || old.thread != now.thread)
        Violation(OwnedWords(slot, now) + " has another primary than before, under the same epoch");
      return;
    }
    const wire::Backup* was = old.FindBackup(now.server);
    // That it has caught up may be taken in the same record.
    const bool in_sync =
        was != nullptr && was->thread == now.thread &&
        (was->in_sync || caught_up_.contains({slot, old.epoch, was->server, was->added.value}));
    if (!in_sync) Violation(OwnedWords(slot, now) + " is promoted and was not in sync");
    if (now.since != state.version)
      Violation(OwnedWords(slot, now) + " begins in version " + std::to_string(state.version.value) +
                " and says since " + std::to_string(now.since.value));
  }
  wire::ClusterState before_;
  std::set<std::tuple<uint32_t, uint64_t, uint32_t, uint64_t>> caught_up_;  // slot, epoch, server, added
};

class WaitsFor final : public Checker {
 public:
  explicit WaitsFor(Context& context) : Checker("waits-for", context) {}
  void OnDurable(const wire::ClusterState& state) override {
    for (uint32_t s = 0; s < state.slots.size(); ++s) Look(state, s);
  }
  void OnMoment() override { OnDurable(context_.durable); }

 private:
  void Look(const wire::ClusterState& state, uint32_t slot) {
    const wire::SlotOwner& owner = state.slots[slot];
    const ShardName primary = context_.OwnerOf(SlotId(slot));
    auto shard = context_.shards.find(primary);
    if (shard == context_.shards.end() || context_.dead.contains(primary)) return;
    if (context_.EpochLed(primary, SlotId(slot)) != owner.epoch) return;  // has yet to hear of it
    for (const wire::Backup& backup : owner.backups) {
      if (!backup.in_sync || shard->second->WaitsFor(SlotId(slot), backup.server)) continue;
      Violation(OwnedWords(slot, owner) + ": server " + std::to_string(backup.server) +
                " is on record as in sync, and the primary does not wait for it");
    }
  }
};

// Whoever becomes primary must have what a backup has applied: it can't be taken back.
class AppliedCommitted final : public Checker {
 public:
  explicit AppliedCommitted(Context& context) : Checker("applied-committed", context) {}
  void OnDurable(const wire::ClusterState& state) override {
    for (uint32_t s = 0; s < state.slots.size(); ++s) Look(SlotId(s));
  }
  void OnMoment() override { OnDurable(context_.durable); }
  void OnReplicated(const ShardName& shard, SlotId slot) override {
    if (context_.RoleOf(shard, slot) == server::Shard::SlotRole::kBackup) LookAt(shard, slot);
  }

 private:
  void Look(SlotId slot) {
    for (const ShardName& owner : context_.InSync(slot))
      if (context_.RoleOf(owner, slot) == server::Shard::SlotRole::kBackup) LookAt(owner, slot);
  }
  void LookAt(const ShardName& shard, SlotId slot) {
    const auto owners = context_.InSync(slot);
    const Position applied = context_.Applied(shard, slot);
    if (applied.index() == 0 || std::ranges::find(owners, shard) == owners.end()) return;
    for (const ShardName& owner : owners) {
      const Position received = context_.Received(owner, slot);
      if (context_.history.Holds(slot, received, applied)) continue;
      return Violation(ToString(shard) + " has applied (" + std::to_string(applied.epoch()) + ", " +
                       std::to_string(applied.index()) + ") of slot " + std::to_string(slot.value) +
                       ", which " + ToString(owner) + ", also in sync, has not received: it has (" +
                       std::to_string(received.epoch()) + ", " + std::to_string(received.index()) + ")");
    }
  }
};

class EqualHashes final : public Checker {
 public:
  explicit EqualHashes(Context& context) : Checker("equal-hashes", context) {}
  void OnMoment() override { CompareAll(); }
  void OnSettled() override { CompareAll(); }
  void AtEnd() override { CompareAll(); }

 private:
  struct Seen {
    ShardName owner;
    uint64_t hash;
  };
  void CompareAll() {
    for (uint32_t s = 0; s < context_.durable.slots.size(); ++s) Compare(SlotId(s));
  }
  // Of owners at the same place in the order, under the same state (which says who and what lives).
  void Compare(SlotId slot) {
    std::map<std::tuple<uint64_t, uint64_t, uint64_t>, Seen> seen;
    for (const ShardName& owner : context_.InSync(slot)) {
      auto shard = context_.shards.find(owner);
      const auto& state = context_.shard_states[owner];
      if (shard == context_.shards.end() || !state) continue;
      const Position at = context_.Applied(owner, slot);
      if (at.index() == 0 || context_.damaged.contains({owner, slot.value})) continue;
      const uint64_t hash = shard->second->ContentHash(slot);
      const uint64_t made_in = context_.history.MadeIn(slot, at);
      auto [it, added] = seen.try_emplace({at.index(), made_in, state->version.value}, Seen{owner, hash});
      if (added || it->second.hash == hash) continue;
      Violation("slot " + std::to_string(slot.value) + " at index " + std::to_string(at.index()) +
                " has other content in " + ToString(owner) + " than in " + ToString(it->second.owner));
    }
  }
};

// Each record by itself. That everything comes to its place after the heal is the world's to say.
class Placement final : public Checker {
 public:
  explicit Placement(Context& context) : Checker("placement", context) {}
  void OnDurable(const wire::ClusterState& state) override {
    for (uint32_t s = 0; s < state.slots.size(); ++s) {
      const wire::SlotOwner& owner = state.slots[s];
      std::vector<uint16_t> servers{owner.server};
      for (const wire::Backup& backup : owner.backups) {
        if (std::ranges::count(servers, backup.server) > 0)
          Violation(OwnedWords(s, owner) + " has two owners on one server");
        if (state.FindServer(backup.server) == nullptr)
          Violation(OwnedWords(s, owner) + " has a backup on a server that is not there");
        servers.push_back(backup.server);
      }
      if (owner.heir == wire::kNoServer) continue;
      const wire::Backup* heir = owner.FindBackup(owner.heir);
      if (heir == nullptr || !heir->in_sync)
        Violation(OwnedWords(s, owner) + " has an heir that is not in sync");
    }
  }
};

}  // namespace

CheckerPtr MakeOneOwner(Context& context) { return std::make_unique<OneOwner>(context); }
CheckerPtr MakePromotion(Context& context) { return std::make_unique<Promotion>(context); }
CheckerPtr MakeWaitsFor(Context& context) { return std::make_unique<WaitsFor>(context); }
CheckerPtr MakeAppliedCommitted(Context& context) { return std::make_unique<AppliedCommitted>(context); }
CheckerPtr MakeEqualHashes(Context& context) { return std::make_unique<EqualHashes>(context); }
CheckerPtr MakePlacement(Context& context) { return std::make_unique<Placement>(context); }

}  // namespace cairn::sim
