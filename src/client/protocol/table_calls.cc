#include "client/protocol/table_calls.h"

#include "base/planted.h"

namespace cairn::client {

WeakFrames BorrowingFrames(const Request& request) {
  WeakFrames frames;
  for (const ShardPart& part : request.parts) {
    if (part.frame && part.borrowed) frames.emplace_back(part.frame);
  }
  return frames;
}

void TableCalls::Submit(Request request) {
  driver_.core().Submit(std::move(request), driver_.NowUs());
  driver_.OnSubmitted();
}

void TableCalls::SubmitPart(Request part, SplitPush& split) {
  if (!split.BeginPart(part, driver_.trip(), split_pushes_)) return;
  driver_.OnBegun();
  Submit(std::move(part));
}

// A client that was closed in the middle of a split push has taken the parts before.
Status TableCalls::NotTaken(const Status& why, const Terms& terms) {
  driver_.FreeRoom(terms.reserved);
  if (terms.split == nullptr || CAIRN_BUG(kClosedInBetween)) return why;
  return {Code::kOutcomeUnknown, why.message() + "; parts of this push were sent, and may have been applied"};
}

}  // namespace cairn::client
