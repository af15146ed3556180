// The client follows the slot map (docs/internals/consistency.md, rule 48): links to new shard threads, and
// every unanswered frame on the link of its slots' owner.
#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "base/check.h"
#include "client/protocol/core.h"
#include "client/partition/split_frame.h"
#include "wire/data.h"
#include "wire/state_exchange.h"

namespace cairn::client {
namespace {

// Where requests go, and from which version on; what else the state says of a slot does not matter.
bool SameMap(const wire::ClusterState& a, const wire::ClusterState& b) {
  const auto same_slot = [](const wire::SlotOwner& x, const wire::SlotOwner& y) {
    return x.server == y.server && x.thread == y.thread && x.since == y.since;
  };
  const auto same_server = [](const wire::ServerInfo& x, const wire::ServerInfo& y) {
    return x.index == y.index && x.incarnation == y.incarnation && x.threads == y.threads;
  };
  return std::equal(a.slots.begin(), a.slots.end(), b.slots.begin(), b.slots.end(), same_slot) &&
         std::equal(a.servers.begin(), a.servers.end(), b.servers.begin(), b.servers.end(),
                    same_server);
}

// "server 0", "servers 0, 2"
std::string NamedServers(const std::set<uint32_t>& servers) {
  std::string text = servers.size() == 1 ? "server " : "servers ";
  bool first = true;
  for (uint32_t server : servers) {
    text += (first ? "" : ", ") + std::to_string(server);
    first = false;
  }
  return text;
}

}  // namespace

std::unique_ptr<ShardLink> Core::MakeLink(const wire::ServerInfo& server, uint16_t thread) {
  ShardLink::Peer peer;
  peer.server = static_cast<uint16_t>(server.index);
  peer.thread = thread;
  peer.endpoint = server.endpoint;
  peer.server_incarnation = server.incarnation;
  peer.cluster_id = scheduler_.state()->cluster_id;
  peer.worker = scheduler_.incarnation();
  ShardLink::Listener& listener = *this;
  return std::make_unique<ShardLink>(std::move(peer), options_, network_, pool_, book_, by_conn_,
                                     listener);
}

void Core::FollowMap(int64_t now_us) {
  const std::shared_ptr<const wire::ClusterState> state = scheduler_.state();
  if (mapped_ != nullptr && SameMap(*mapped_, *state)) return;
  const std::shared_ptr<const wire::ClusterState> before = std::exchange(mapped_, state);
  map_version_ = state->version;
  newest_since_ = {};
  for (const wire::SlotOwner& owner : state->slots)
    newest_since_ = std::max(newest_since_, owner.since);
  if (before == nullptr) book_.SetSize(state->slots.size());
  std::vector<ShardLink*> fresh;
  auto gone = links_.Follow(*state, [&](const wire::ServerInfo& server, uint16_t thread) {
    auto link = MakeLink(server, thread);
    fresh.push_back(link.get());
    return link;
  });
  for (ShardLink* link : fresh) link->Connect(now_us);
  if (before == nullptr) return;
  LogMoves(*before, now_us);
  Reroute(gone, now_us);
}

void Core::Reroute(std::vector<std::unique_ptr<ShardLink>>& gone, int64_t now_us) {
  const wire::ClusterState& state = *scheduler_.state();
  ForgetAnswersOf(gone);
  std::vector<ShardLink::Moving> moving;
  const auto take = [&](ShardLink& link, bool stays) {
    const ShardLink::Peer& peer = link.peer();
    const auto home_of = [&](const Outgoing& frame) -> ShardLink::Home {
      if (!stays) return {false, {}};
      if (wire::MutableEntries(*frame.frame).empty()) return {};  // a bare mark
      const FrameHome home = HomeOf(*frame.frame, state);
      return {home.one && home.server == peer.server && home.thread == peer.thread, home.stamp};
    };
    for (ShardLink::Moving& one : link.TakeMisplaced(home_of, now_us))
      moving.push_back(std::move(one));
  };
  for (auto& link : gone) {
    take(*link, false);
    link->Stop();
  }
  for (Links::Place& place : links_.all()) take(*place.link, true);
  if (!moving.empty()) ++reroutes_;
  for (ShardLink::Moving& one : moving) MoveFrame(std::move(one));
  for (Links::Place& place : links_.all()) place.link->Resume(now_us);
  MarkOpenRounds(now_us);
}

// Goes to the owners of its slots, in one piece or in several.
void Core::MoveFrame(ShardLink::Moving moving) {
  const Outgoing& old = moving.frame;
  Record& record = requests_.at(old.request);
  RecycledVector<ShardPart>& parts = record.request.parts;
  const bool marks = record.frames[old.part].marks;
  if (wire::MutableEntries(*old.frame).empty()) {
    // A mark for a server that is gone. Whoever has its slots is told by MarkOpenRounds.
    record.frames[old.part] = {};
    parts[old.part].server = wire::kNoServer;
    --record.unanswered;
    return;
  }
  ShardPart whole = std::move(parts[old.part]);
  whole.borrowed = old.borrows;  // past its deadline it has values of its own
  std::vector<ShardPart> pieces = CutBySlot(old.frame, whole, *scheduler_.state(), pool_);
  record.unanswered += static_cast<uint32_t>(pieces.size()) - 1;
  for (size_t k = 0; k < pieces.size(); ++k) {
    Outgoing frame;
    frame.request = old.request;
    frame.part = k == 0 ? old.part : static_cast<uint32_t>(parts.size());
    frame.kind = old.kind;
    frame.parks = old.parks;
    frame.borrows = old.borrows;
    frame.answer_bytes = old.answer_bytes;
    frame.sends = std::min(old.sends, uint32_t{1});
    frame.frame = std::move(pieces[k].frame);
    if (k > 0) {
      parts.emplace_back();
      record.frames.emplace_back();
    }
    // Behind what was before the old frame, before what was behind it; and not its own id: a shard
    // may still have the old frame parked, with other slots.
    CAIRN_CHECK(++record.moves < kFrameIdStep);
    const uint64_t id = moving.id / kFrameIdStep * kFrameIdStep + record.moves;
    ShardLink* const link = links_.At(pieces[k].server, pieces[k].thread);
    frame.frame->header().request_id = id;
    link->Seal(*frame.frame);
    record.frames[frame.part] = {id, marks, {}};
    parts[frame.part] = std::move(pieces[k]);
    link->Insert(id, std::move(frame));
  }
}

// The caller's thread made the request under an older map. Nothing of it has been sent.
void Core::FitToMap(Record& record) {
  const wire::ClusterState& state = *scheduler_.state();
  RecycledVector<ShardPart> fitted;
  for (ShardPart& part : record.request.parts) {
    if (wire::MutableEntries(*part.frame).empty()) continue;  // a bare mark: they are made anew
    const FrameHome home = HomeOf(*part.frame, state);
    if (home.one) {
      wire::FrameHeader& header = part.frame->header();
      header.state_version = std::max(header.state_version, home.stamp.value);
      part.server = home.server;
      part.thread = home.thread;
      fitted.push_back(std::move(part));
      continue;
    }
    for (ShardPart& piece : CutBySlot(part.frame, part, state, pool_))
      fitted.push_back(std::move(piece));
  }
  record.request.parts = std::move(fitted);
}

void Core::LogMoves(const wire::ClusterState& before, int64_t now_us) {
  const wire::ClusterState& now = *scheduler_.state();
  std::map<uint32_t, std::set<uint32_t>> heirs;  // of servers that are gone
  for (const wire::ServerInfo& server : before.servers) {
    const wire::ServerInfo* same = now.FindServer(server.index);
    if (same == nullptr || same->incarnation != server.incarnation) heirs[server.index];
  }
  for (size_t slot = 0; slot < now.slots.size(); ++slot) {
    const uint32_t from = before.slots[slot].server, to = now.slots[slot].server;
    if (auto it = heirs.find(from); it != heirs.end()) {
      it->second.insert(to);
    } else if (from != to) {
      ++slots_moved_;
      moved_to_.insert(to);
    }
  }
  for (const auto& [server, to] : heirs) {
    log_("server " + std::to_string(server) + " is gone; " +
         (to.empty() ? "it had no partitions" : "its partitions are now on " + NamedServers(to)));
  }
  LogSlotsMoved(now_us);
}

// Slots that are handed over move one by one: a line for many of them.
void Core::LogSlotsMoved(int64_t now_us) {
  if (slots_moved_ == 0 || now_us < moved_log_us_) return;
  moved_log_us_ = now_us + options_.still_waiting_log_us;
  log_(std::to_string(slots_moved_) +
       (slots_moved_ == 1 ? " partition has moved to " : " partitions have moved to ") +
       NamedServers(moved_to_));
  slots_moved_ = 0;
  moved_to_.clear();
}

void Core::OnNewerState(StateVersion version, int64_t now_us) {
  wanted_version_ = std::max(wanted_version_, version);
  AskForState(now_us);
}

// The scheduler answers a heartbeat with the state, if it has a newer one.
void Core::AskForState(int64_t now_us) {
  if (wanted_version_.value <= book_.state_version || now_us < ask_us_) return;
  ask_us_ = now_us + kAskEveryUs;
  scheduler_.Heartbeat(now_us);
}

// A scheduler that ended in the middle of telling has told somebody: workers carry it to everybody.
void Core::CompareStates(int64_t now_us) {
  if (!fatal_.ok() || now_us < compare_us_ || !scheduler_.Quiet(now_us)) return;
  compare_us_ = now_us + scheduler_.heartbeat_us();
  for (Links::Place& place : links_.all()) place.link->Tell(wire::StateAt{scheduler_.state()->version});
}

void Core::TakePassedState(int64_t now_us) {
  if (!passed_) return;
  wire::StateMessage passed = *std::exchange(passed_, std::nullopt);
  if (fatal_.ok()) scheduler_.TakePassed(passed, now_us);
}

void Core::OnStateOf(ShardLink& link, wire::ControlMessage& message) {
  if (auto* passed = std::get_if<wire::StateMessage>(&message)) {
    passed_ = std::move(*passed);  // a new state may end the link that this came by
    return;
  }
  if (const auto answer = wire::AnswerTo(std::get<wire::StateAt>(message), *scheduler_.state())) link.Tell(*answer);
}

}  // namespace cairn::client
