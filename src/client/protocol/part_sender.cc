#include "client/protocol/part_sender.h"

#include <utility>

#include "base/check.h"
#include "client/partition/scatter.h"

namespace cairn::client {

bool PartSender::BeginsTrip(uint64_t id, uint64_t trip, ShardLink& link) const {
  constexpr uint64_t kOwn = uint64_t{1} << 63;
  return link.BeginTrip(trip == 0 || id != submitting_ ? kOwn | id : trip);
}

void PartSender::Send(uint64_t id, RequestRecord& record, uint32_t at, bool fitted, int64_t now_us) {
  CAIRN_CHECK(record.sent && record.frames.size() == at);
  ShardPart& part = record.request.parts[at];
  const Request::Kind kind = record.request.kind;
  wire::FrameHeader& header = part.frame->header();
  header.request_id = next_frame_++ * kFrameIdStep;
  header.incarnation = scheduler_.incarnation().value;
  header.round = record.round.value;
  ShardLink* const link = links_.At(part.server, part.thread);
  CAIRN_CHECK(link != nullptr);
  if (BeginsTrip(id, record.request.trip, *link)) header.flags |= wire::kFlagTrip;
  if (kind == Request::Kind::kPush) {
    for (wire::SlotEntry& entry : wire::MutableEntries(*part.frame)) {
      entry.number = book_.next_number[entry.slot]++;
    }
  }
  link->Seal(*part.frame);
  const bool marks =
      IsRound(kind) && (header.type == wire::FrameType::kDone || (header.flags & wire::kFlagDone) != 0);
  record.frames.push_back({header.request_id, marks, {}});
  ++record.unanswered;
  Outgoing frame;
  frame.request = id;
  frame.part = at;
  frame.kind = kind;
  frame.parks = record.parks;
  frame.borrows = part.borrowed;
  // Now: where the values go is forgotten when the deadline passes, and the answer may come later.
  frame.answer_bytes = part.keys == nullptr ? ExpectedBytes(part) : wire::kMaxBodyBytes;
  // The driver knows the frames of the request as it was submitted, and would take its connections'
  // hands off them; for others this is up to the link (ShardLink::End).
  frame.sends = fitted ? 1 : 0;
  frame.frame = std::move(part.frame);
  link->Enqueue(record.frames.back().id, std::move(frame), now_us);
}

}  // namespace cairn::client
