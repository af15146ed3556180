// For tests of placement: a cluster without a scheduler, whose copies and handovers end when a test says so.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "scheduler/placement/balance_reference.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/traffic.h"
#include "scheduler/rules/durable.h"
#include "scheduler/rules/membership.h"
#include "scheduler/rules/owners.h"
#include "scheduler/rules/views.h"

namespace cairn::scheduler {

class Cluster {
 public:
  Cluster(uint64_t seed, uint32_t servers, uint32_t slots, uint32_t replicas, uint32_t threads = 1)
      : random_(seed), threads_(threads) {
    d.slot_count = slots;
    d.initial_servers = d.state.expected_servers = servers;
    d.state.expected_workers = 1;
    d.state.replicas = replicas;
    d.state.version = StateVersion(1);
    for (uint32_t i = 0; i < servers; ++i) Join();
    AddNode(d, {.role = wire::Role::kWorker, .uid = 1, .endpoint = {"w", 0}}, 0, 0);
    Form(d);
    for (uint32_t i = 0; i < slots; ++i) bytes.push_back(Below(1 << 20));
  }

  uint64_t Below(uint64_t end) { return std::uniform_int_distribution<uint64_t>(0, end - 1)(random_); }
  void Join() {
    uint32_t index = 0;
    while (d.state.FindServer(index) != nullptr) ++index;
    AddNode(d,
            {.role = wire::Role::kServer,
             .uid = ++uids_,
             .endpoint = {"h", static_cast<uint16_t>(uids_)},
             .threads = threads_},
            index, 0);
  }
  void set_threads(uint32_t threads) { threads_ = threads; }  // of those that join
  wire::ServerInfo& Any() { return d.state.servers[Below(d.state.servers.size())]; }

  // One record: some of what is under way ends (all of it, if `all`), and the balancer is asked.
  bool Step(bool all) {
    d.state.version = d.state.version.Next();
    bool ended = false;
    for (uint32_t slot = 0; slot < d.state.slots.size(); ++slot) {
      for (const wire::Backup& backup : std::vector<wire::Backup>(d.state.slots[slot].backups))
        if (!backup.in_sync && (all || Below(3) == 0)) {
          MarkInSync(d, slot, backup.server);
          ++copies;
          ended = true;
        }
      if (d.state.slots[slot].heir != wire::kNoServer && (all || Below(2) == 0)) {
        FinishHandover(d, slot);
        ended = true;
      }
    }
    const std::vector<wire::SlotOwner> before = d.state.slots;
    DurableState plainly = d;
    const PlacementChange wanted = ReferencePlanner::Place(plainly, bytes, limits);
    const PlacementChange made = Place(d, bytes, limits);
    EXPECT_EQ(d, plainly) << "the balancer and its reference decide differently";
    EXPECT_EQ(made.any(), wanted.any());
    const bool changed = made.any();
    Check(before);
    for (const wire::ServerInfo& server : std::vector<wire::ServerInfo>(d.state.servers))
      if (server.leaving && Owned(server.index) == 0) RemoveServer(d, server.incarnation, NodeFate::kLeft);
    return ended || changed;
  }
  // The same with traffic, all of what is under way being over. The number of slots moved for it.
  size_t TrafficStep() {
    d.state.version = d.state.version.Next();
    for (uint32_t slot = 0; slot < d.state.slots.size(); ++slot) {
      for (const wire::Backup& backup : std::vector<wire::Backup>(d.state.slots[slot].backups))
        if (!backup.in_sync) MarkInSync(d, slot, backup.server), ++copies;
      if (d.state.slots[slot].heir != wire::kNoServer) FinishHandover(d, slot);
    }
    const std::vector<wire::SlotOwner> before = d.state.slots;
    const PlacementChange made = Place(d, bytes, limits, &traffic);
    Check(before);
    return made.for_traffic.size();
  }
  // Until nothing is left to do; the number of records it took.
  int Rest() {
    int steps = 0;
    while (Step(true)) {
      if (++steps > 2000) {
        ADD_FAILURE() << "it never comes to rest";
        break;
      }
    }
    return steps;
  }

  void Check(const std::vector<wire::SlotOwner>& before) {
    const uint32_t wanted = std::max(WantedOwners(d.state), d.state.min_in_sync);
    std::map<uint32_t, uint32_t> in, out, handing;
    for (size_t slot = 0; slot < before.size(); ++slot) {
      const wire::SlotOwner &was = before[slot], &is = d.state.slots[slot];
      EXPECT_EQ(is.server, was.server) << "only a handover or a death changes primaries";
      EXPECT_EQ(is.epoch, was.epoch);
      const uint32_t had = InSyncOwners(was), has = InSyncOwners(is);
      EXPECT_GE(has, std::min(had, wanted)) << "slot " << slot;
      for (const wire::Backup& backup : is.backups) {
        if (backup.in_sync) continue;
        ++in[backup.server];
        ++out[is.server];
        if (was.FindBackup(backup.server) == nullptr) {
          EXPECT_FALSE(d.state.FindServer(backup.server)->leaving);
          EXPECT_EQ(std::count(limits.avoid.begin(), limits.avoid.end(), backup.server), 0);
          EXPECT_EQ(backup.added, d.state.version);
        }
      }
      if (is.heir != wire::kNoServer) {
        ++handing[is.server];
        ASSERT_NE(is.FindBackup(is.heir), nullptr);
        EXPECT_TRUE(is.FindBackup(is.heir)->in_sync);
      }
    }
    if (deaths_) return;  // a death may bring more to one server than the limit
    for (const auto& [server, count] : in) EXPECT_LE(count, limits.copies_per_server);
    for (const auto& [server, count] : out) EXPECT_LE(count, limits.copies_per_server);
    for (const auto& [server, count] : handing) EXPECT_LE(count, limits.handovers_per_server);
  }
  // Of a server that none of its slots needs; nothing otherwise.
  void Kill(uint32_t server) {
    if (d.state.servers.size() == 1 || !SlotsOnlyAt(d.state, server).empty()) return;
    deaths_ = true;
    RemoveServer(d, d.state.FindServer(server)->incarnation, NodeFate::kRetired);
  }
  size_t Owned(uint32_t server) const {
    return static_cast<size_t>(
        std::count_if(d.state.slots.begin(), d.state.slots.end(), [&](const wire::SlotOwner& owner) {
          return owner.server == server || owner.FindBackup(static_cast<uint16_t>(server)) != nullptr;
        }));
  }
  void ExpectInPlace(double tolerance) {
    std::map<uint32_t, double> owned, primaries;
    double sum = 0, weights = 0;
    for (uint32_t slot = 0; slot < d.state.slots.size(); ++slot) {
      const wire::SlotOwner& owner = d.state.slots[slot];
      EXPECT_EQ(InSyncOwners(owner), WantedOwners(d.state)) << "slot " << slot;
      EXPECT_EQ(owner.backups.size() + 1, WantedOwners(d.state));
      EXPECT_EQ(owner.heir, wire::kNoServer);
      ++primaries[owner.server];
      owned[owner.server] += static_cast<double>(bytes[slot]);
      for (const wire::Backup& backup : owner.backups)
        owned[backup.server] += static_cast<double>(bytes[slot]);
      sum += static_cast<double>(bytes[slot]) * WantedOwners(d.state);
    }
    EXPECT_TRUE(d.moving_from.empty());
    for (const wire::ServerInfo& server : d.state.servers) weights += server.threads;
    for (const wire::ServerInfo& server : d.state.servers) {
      const double share = sum * server.threads / weights;
      EXPECT_NEAR(owned[server.index], share, tolerance * share) << "server " << server.index;
      if (WantedOwners(d.state) == 1) continue;
      const double due = static_cast<double>(d.state.slots.size()) * server.threads / weights;
      EXPECT_NEAR(primaries[server.index], due, 2.0) << "primaries of server " << server.index;
    }
  }

  DurableState d;
  SlotBytes bytes;
  SlotTraffic traffic;
  PlacementLimits limits;
  uint32_t copies = 0;

 private:
  std::mt19937_64 random_;
  uint32_t threads_;
  uint64_t uids_ = 100;
  bool deaths_ = false;
};

}  // namespace cairn::scheduler
