#include "client/protocol/round_coverage.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/planted.h"

namespace cairn::client {

void RoundCoverage::OnNewMap(const wire::ClusterState& state) {
  newest_since_ = {};
  for (const wire::SlotOwner& owner : state.slots) newest_since_ = std::max(newest_since_, owner.since);
}

void RoundCoverage::ForgetAnswersOf(const std::vector<std::unique_ptr<ShardLink>>& gone) {
  for (auto& [id, record] : requests_) {
    if (!record.sent || !IsRound(record.request.kind)) continue;
    for (size_t i = 0; i < record.frames.size(); ++i) {
      ShardPart& part = record.request.parts[i];
      if (record.frames[i].id != 0) continue;
      for (const auto& link : gone) {
        if (link->peer().server == part.server) part.server = wire::kNoServer;
      }
    }
  }
}

void RoundCoverage::NoteMark(RequestRecord& record, FrameState& frame, StateVersion made_under) {
  frame.answered = made_under;
  if (SameMapAt(made_under)) return;
  record.doubtful = true;
  record.newest_answer = std::max(record.newest_answer, made_under);
}

bool RoundCoverage::IsCovered(uint64_t id, RequestRecord& record, int64_t now_us) {
  CAIRN_CHECK(record.sent && record.unanswered == 0);
  if (CAIRN_BUG(kRoundNotCovered)) return true;
  if (!record.doubtful || record.outcome.code() == Code::kNotFound) return true;
  if (record.newest_answer.value > book_.state_version) {
    awaits_state_ = true;
    newest_.Want(record.newest_answer, now_us);
    return false;
  }
  return MarkMissing(id, record, now_us) == 0;
}

std::vector<uint64_t> RoundCoverage::TakeAnswered() {
  std::vector<uint64_t> answered;
  if (!std::exchange(awaits_state_, false)) return answered;
  for (const auto& [id, record] : requests_) {
    if (record.sent && record.unanswered == 0) answered.push_back(id);
  }
  return answered;
}

void RoundCoverage::MarkOpenRounds(int64_t now_us) {
  if (CAIRN_BUG(kMarksNotAnnounced)) return;
  for (auto& [id, record] : requests_) {
    if (!record.sent || !IsRound(record.request.kind)) continue;
    record.doubtful = true;
    MarkMissing(id, record, now_us);
    awaits_state_ |= record.unanswered == 0;  // the last frame was for a server that is gone
  }
}

size_t RoundCoverage::MarkMissing(uint64_t id, RequestRecord& record, int64_t now_us) {
  std::vector<bool> told(links_.all().size());
  for (size_t i = 0; i < record.frames.size(); ++i) {
    const FrameState& frame = record.frames[i];
    if (!frame.marks) continue;
    const ShardPart& part = record.request.parts[i];
    const size_t at = links_.IndexOf(part.server, part.thread);
    if (at == told.size()) continue;
    const bool covers = frame.id != 0 || frame.answered >= links_.all()[at].since;
    if (covers) told[at] = true;
  }
  size_t added = 0;
  for (size_t at = 0; at < told.size(); ++at) {
    if (told[at]) continue;
    const Links::Place& place = links_.all()[at];
    ShardPart part;
    part.server = place.link->peer().server;
    part.thread = place.link->peer().thread;
    part.frame = CopyMark(record, place.since);
    record.request.parts.push_back(std::move(part));
    sender_.Send(id, record, static_cast<uint32_t>(record.request.parts.size() - 1), false, now_us);
    ++added;
  }
  return added;
}

wire::FramePtr RoundCoverage::CopyMark(const RequestRecord& record, StateVersion since) {
  CAIRN_CHECK(record.request.mark != nullptr);
  const wire::Frame& mark = *record.request.mark;
  auto copy = std::make_shared<wire::Frame>();
  copy->head = pool_.Get(mark.head.size());
  std::memcpy(copy->head.data(), mark.head.data(), mark.head.size());
  wire::FrameHeader& header = copy->header();
  header.state_version = std::max(header.state_version, since.value);
  return copy;
}

}  // namespace cairn::client
