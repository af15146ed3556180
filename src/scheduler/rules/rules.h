// The scheduler's decisions as changes of a DurableState: no time, no messages, the same result
// from the same input. membership.cc, views.cc, owners.cc, placement.cc, balance.cc, tables.cc, table_spec.cc
// and job_end.cc implement them; the core (core.h) decides when, logs the result and tells the nodes.
// docs/internals/consistency.md has the rules.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/rules/durable.h"

namespace cairn::scheduler {

// --- membership.cc (rules 2, 5) ---

inline constexpr uint32_t kMaxRanks = 65536;
inline constexpr uint32_t kMaxServerThreads = 1024;

// What can be said about a registration without looking at who is there.
Status CheckRegister(const DurableState& d, const wire::Register& request);
// The index or rank that a new node gets, or why it can't have one. Requires CheckRegister.
Result<uint32_t> ChooseServerIndex(const DurableState& d, const wire::Register& request);
Result<uint32_t> ChooseRank(const DurableState& d, const wire::Register& request);
// The server that listens there, if any.
const wire::ServerInfo* FindServerAt(const wire::ClusterState& state, const wire::Endpoint& endpoint);
const wire::WorkerInfo* FindWorkerOfRank(const wire::ClusterState& state, Rank rank);

// Gives the node the next incarnation and lists it. A live worker of the same rank is retired.
Incarnation AddNode(DurableState& d, const wire::Register& request, uint32_t rank, uint64_t barrier_base);
// Takes a live worker out of the job: kLeft makes its rank done.
void RemoveWorker(DurableState& d, Incarnation incarnation, NodeFate fate);

// --- views.cc (rules 3, 6) ---

// The ranks below expected_workers that the job can't start without and that are not there.
std::vector<uint32_t> MissingRanks(const DurableState& d);
std::vector<uint32_t> MissingServers(const DurableState& d);
bool ReadyToForm(const DurableState& d);
// Slot map, view 1, phase running. `d.state.version` is the version of the record.
void Form(DurableState& d);
std::vector<wire::SlotOwner> MakeSlotMap(std::span<const wire::ServerInfo> servers, uint32_t slot_count,
                                         StateVersion since);
// Gives each slot of a fresh map its backups, all in sync since everything is empty: those of one
// server's slots on all other servers in turn, so that its death spreads its work over all of them.
void SpreadBackups(wire::ClusterState& state);
std::vector<uint32_t> WaitingRanks(const wire::ClusterState& state);  // registered, in no view
void BeginView(DurableState& d);
// `open_rounds`: every server's report for the pending view, in any order.
void FinishView(DurableState& d, std::span<const wire::TableRound> open_rounds);
void DropUnusedViews(wire::ClusterState& state);

// --- owners.cc (rules 43 to 45, 47) ---
// In all of them d.state.version is the version of the record.

uint32_t InSyncOwners(const wire::SlotOwner& owner);   // the primary counts
size_t CopyingSlots(const wire::ClusterState& state);  // that have a backup which is not in sync
uint32_t StayingServers(const wire::ClusterState& state);
uint32_t WantedOwners(const wire::ClusterState& state);  // of each slot: min(replicas, staying servers)
// The slots of which this server (index) is the only owner in sync: they are lost with it.
std::vector<uint32_t> SlotsOnlyAt(const wire::ClusterState& state, uint32_t server);
// Takes a server out of the job and out of every slot; owners in sync become primaries where it was
// one, if possible none of the suspects (indexes). Requires that SlotsOnlyAt is empty.
void RemoveServer(DurableState& d, Incarnation incarnation, NodeFate fate,
                  std::span<const uint32_t> suspects = {});
void AddBackup(DurableState& d, uint32_t slot, uint16_t server, uint16_t thread);
void MarkInSync(DurableState& d, uint32_t slot, uint32_t server);
void DropBackup(DurableState& d, uint32_t slot, uint32_t server);
void BeginHandover(DurableState& d, uint32_t slot, uint32_t heir);
void FinishHandover(DurableState& d, uint32_t slot);
enum class NewsEffect : uint8_t {
  kStale,       // not, or no longer, about the owners of now
  kNotAllowed,  // a slow backup that is needed
  kTaken,
};
// `sender`: the server that says it, by index; `held`: the version that it held.
NewsEffect TakeNews(DurableState& d, uint32_t sender, StateVersion held, const wire::SlotNews& news);

// Whether `sender`, the slot's primary, says that it can't go on with it; and what the job ends with then.
bool IsRuin(const wire::ClusterState& state, uint32_t sender, const wire::SlotNews& news);
std::string WordsOfRuin(const wire::SlotNews& news);

// --- placement.cc, balance.cc, traffic.cc (rules 46, 53) ---

inline constexpr uint32_t kFewMoves = 4;  // may be under way however heavy they are
inline constexpr uint64_t kLightMovesBytes = uint64_t{64} << 20;  // of more than a few, together
struct PlacementLimits {
  uint32_t copies_per_server = kFewMoves;     // under way at a time, from it and to it
  uint32_t handovers_per_server = kFewMoves;  // under way at a time, from it: those slots take nothing
  std::vector<uint32_t> avoid;        // servers (indexes) that no copy is begun to
};
// Bytes by slot. Empty: not known, all count the same.
using SlotBytes = std::vector<uint64_t>;
// Work a second, by slot; both of the same length. Slots beyond it have none.
struct SlotTraffic {
  std::vector<double> pushed, pulled;  // pushed: done by every owner; pulled: by the primary
  std::vector<bool> resting;           // by slot, or empty: has been moved for its traffic lately
};
// Of the shard threads of servers that stay, with every slot where it is.
struct TrafficSpread {
  double hottest = 0, mean = 0;
  uint32_t server = 0, thread = 0;  // the hottest
  double of_mean() const { return mean > 0 ? hottest / mean : 1; }
};
TrafficSpread SpreadOf(const wire::ClusterState& state, const SlotTraffic& traffic);
// Both limits for a cluster: a few, but with more than 1,024 slots one for every 256 of them, as long as
// the heaviest so many are light together. Each wave is a record of every slot, so what a wave moves has to
// grow with the record, or the waves take longer the more slots there are.
uint32_t MovesAtATime(size_t slots, const SlotBytes& bytes);
struct PlacementChange {
  uint32_t copies = 0, drops = 0, handovers = 0;
  std::vector<uint32_t> for_traffic;  // slots that it has begun to move for their traffic
  bool any() const { return copies + drops + handovers > 0; }
};
// Begins whatever copies, drops and handovers bring the owners nearer to what is wanted and are
// possible now. Once nothing is under way and this changes nothing, everything is in its place. With
// `traffic` it then also moves slots off shard threads that have clearly more than the mean of it.
PlacementChange Place(DurableState& d, const SlotBytes& bytes, const PlacementLimits& limits,
                      const SlotTraffic* traffic = nullptr);
// How many copies Place has yet to begin or to finish, if nothing else happens: about, with many slots.
uint32_t CopiesLeft(const DurableState& d, const SlotBytes& bytes, const PlacementLimits& limits);

// --- tables.cc, table_spec.cc (rule 8) ---

inline constexpr size_t kMaxTables = 4096;
// Each takes 8 bytes of the state, which is sent whole.
inline constexpr size_t kMaxSegmentsOfAll = 262144;

// Whether there is such a table, and what to do if not.
Status CheckSpec(const TableSpec& spec, uint32_t slot_count);
// Whether these, which are not there yet, fit into the state.
Status CheckRoom(const wire::ClusterState& state, std::span<const TableSpec* const> specs);
// What differs, as "mode (sync there, async asked for), size (…)". Empty: nothing does.
std::string DescribeDifference(const TableSpec& there, const TableSpec& asked);
// Requires CheckSpec and CheckRoom, and that no table has the name.
TableId AddTable(DurableState& d, const TableSpec& spec);
void RemoveTable(DurableState& d, TableId table);
// Remembers that the request has been carried out in d.state.version, and of each worker the last `most`.
void RememberOperation(DurableState& d, Incarnation incarnation, uint64_t request, TableId table, size_t most);
const TableOperation* FindOperation(const DurableState& d, Incarnation incarnation, uint64_t request);
std::string Describe(const TableSpec& spec);         // "dense sync sgd, 7850 float32 elements"
const char* OptimizerWord(OptimizerKind optimizer);  // "sgd"

// --- job_end.cc (rules 7, 10) ---

// Ranks of the job that are neither live nor done nor given up: dead, or never seen.
std::vector<uint32_t> OpenRanks(const DurableState& d);
bool JobIsOver(const DurableState& d);
// Requires JobIsOver. Phase ended, or failed if nobody is done.
void EndJob(DurableState& d);
void FailJob(DurableState& d, std::string reason);

// --- words.cc ---

std::string Count(size_t n, std::string_view noun);  // "1 worker", "2 workers"
// "rank 1", "ranks 1, 2"; a long list ends in "and 90 more".
std::string Listed(std::string_view noun, const std::vector<uint32_t>& numbers);
std::string Seconds(int64_t us);                                 // "5.0 s"
std::string Printable(std::string_view text, size_t max_bytes);  // without control characters, cut
bool IsPrintable(std::string_view text);

}  // namespace cairn::scheduler
