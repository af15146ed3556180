#include "client/protocol/rerouting.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "client/partition/split_frame.h"
#include "wire/data.h"

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
         std::equal(a.servers.begin(), a.servers.end(), b.servers.begin(), b.servers.end(), same_server);
}

}  // namespace

void Rerouting::FollowMap(int64_t now_us) {
  const std::shared_ptr<const wire::ClusterState> state = scheduler_.state();
  if (mapped_ != nullptr && SameMap(*mapped_, *state)) return;
  const std::shared_ptr<const wire::ClusterState> before = std::exchange(mapped_, state);
  CAIRN_CHECK(state->version > map_version_);
  map_version_ = state->version;
  coverage_.OnNewMap(*state);
  if (before == nullptr) book_.SetSize(state->slots.size());
  Links::Followed followed = links_.Follow(*state, scheduler_.incarnation());
  for (ShardLink* link : followed.fresh) link->Connect(now_us);
  if (before == nullptr) return;
  log_.OnNewMap(*before, *state, now_us);
  Reroute(followed.gone, now_us);
}

void Rerouting::Reroute(std::vector<std::unique_ptr<ShardLink>>& gone, int64_t now_us) {
  const wire::ClusterState& state = *scheduler_.state();
  coverage_.ForgetAnswersOf(gone);
  std::vector<ShardLink::Moving> moving;
  const auto take = [&](ShardLink& link, bool stays) {
    const ShardLink::Peer& peer = link.peer();
    const auto home_of = [&](const Outgoing& frame) -> ShardLink::Home {
      if (!stays) return {false, {}};
      if (wire::MutableEntries(*frame.frame).empty()) return {};  // a bare mark
      const FrameHome home = HomeOf(*frame.frame, state);
      return {home.one && home.server == peer.server && home.thread == peer.thread, home.stamp};
    };
    for (ShardLink::Moving& one : link.TakeMisplaced(home_of, now_us)) moving.push_back(std::move(one));
  };
  for (auto& link : gone) {
    take(*link, false);
    link->Stop();
  }
  for (Links::Place& place : links_.all()) take(*place.link, true);
  if (!moving.empty()) ++reroutes_;
  for (ShardLink::Moving& one : moving) MoveFrame(std::move(one));
  for (Links::Place& place : links_.all()) place.link->Resume(now_us);
  coverage_.MarkOpenRounds(now_us);
}

// Goes to the owners of its slots, in one piece or in several. By value: the old frame is gone afterwards.
void Rerouting::MoveFrame(ShardLink::Moving moving) {  // NOLINT(performance-unnecessary-value-param)
  constexpr uint64_t kFrameIdStep = PartSender::kFrameIdStep;
  const Outgoing& old = moving.frame;
  RequestRecord& record = requests_.At(old.request);
  CAIRN_CHECK(record.sent && record.unanswered > 0);
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
  CAIRN_CHECK(!pieces.empty());
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

void Rerouting::FitToMap(RequestRecord& record) const {
  CAIRN_CHECK(record.frames.empty());
  const wire::ClusterState& state = *scheduler_.state();
  RecycledVector<ShardPart> fitted;
  for (ShardPart& part : record.request.parts) {
    if (wire::MutableEntries(*part.frame).empty()) continue;  // a bare mark: they are made again
    const FrameHome home = HomeOf(*part.frame, state);
    if (home.one) {
      wire::FrameHeader& header = part.frame->header();
      header.state_version = std::max(header.state_version, home.stamp.value);
      part.server = home.server;
      part.thread = home.thread;
      fitted.push_back(std::move(part));
      continue;
    }
    for (ShardPart& piece : CutBySlot(part.frame, part, state, pool_)) fitted.push_back(std::move(piece));
  }
  record.request.parts = std::move(fitted);
}

}  // namespace cairn::client
