#include "client/runtime/table_verbs.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "client/partition/rounding.h"
#include "client/protocol/room_wait.h"
#include "client/runtime/control_verbs.h"
#include "client/runtime/push_pull_call.h"

namespace cairn {
namespace {
using client::PartitionInput;
using client::Request;

std::string InMiB(uint64_t bytes) {
  const uint64_t tenths = bytes * 10 / (uint64_t{1} << 20);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}
}  // namespace

Status TableVerbs::Reserve(const TableHandle& table, uint64_t bytes, int64_t deadline_us) {
  using Next = client::RoomWait::Next;
  constexpr int64_t kAskUs = 50'000;
  client::RoomWait wait(deadline_us);
  const auto push = [&] { return "push to table \"" + table.info.spec.name + "\": "; };
  for (int64_t until_us = 0; !unacked_.Reserve(bytes, until_us);) {
    const bool interrupted = until_us != 0 && options_.interrupted && options_.interrupted();
    switch (wait.OnFull(unacked_.closed(), interrupted, LoopSide::NowUs())) {
      case Next::kSendTrip: hand_over_.SendTripHere(); break;
      case Next::kTryAgain: break;
      case Next::kClosed: return hand_over_.closed();
      case Next::kInterrupted: return {Code::kCancelled, push() + "interrupted; nothing was sent"};
      case Next::kFull:
        return {Code::kDeadlineExceeded, push() + "no room for it, " + InMiB(unacked_.bytes()) +
                                             " are not yet acknowledged by the servers (the bound is " +
                                             InMiB(unacked_.bound()) + "); nothing was sent"};
    }
    until_us = options_.interrupted ? std::min(deadline_us, LoopSide::NowUs() + kAskUs) : deadline_us;
  }
  return Status::Ok();
}

Pending TableVerbs::Submit(Result<Request> request, const Submission& submission) {
  if (!request.ok()) {
    unacked_.Free(submission.reserved);
    return PendingState::Ready(request.status());
  }
  if (IsRound(request->kind)) waits_.NoteCaller();
  auto state = MakeRecycled<PendingState>(submission.detached);
  const auto then = submission.awaited ? HandOver::Then::kWaits : HandOver::Then::kGoesOn;
  const Status begun = calls_.Begin(
      std::move(*request),
      {.deadline_us = submission.deadline_us,
       .reserved = submission.reserved,
       .info = submission.info,
       .split = submission.split},
      [state](const Status& status) { state->Complete(status); },
      [&](Call<void()> call) { return hand_over_.Begin(std::move(call), *state, then); });
  if (!begun.ok()) return PendingState::Ready(begun);
  if (submission.chosen != nullptr) submission.chosen->KeepRest();
  return PendingState::PendingOf(std::move(state));
}

Pending TableVerbs::Push(const TableHandle& table, const TableCall& call) {
  if (Status wrong = client::CheckGiven(table, call); !wrong.ok()) return PendingState::Ready(wrong);
  if (!client::IsNumbered(table.info.spec, call.op)) return Round(table, call, {});
  if (call.info != nullptr) *call.info = {};
  const int64_t deadline_us = DeadlineUs(options_, call.timeout_ms);
  const auto state = loop_.Snapshot();
  if (Status wrong = client::CheckCall(table, call, *state); !wrong.ok()) return PendingState::Ready(wrong);
  const uint64_t bytes = call.bytes();
  if (Status full = Reserve(table, bytes, deadline_us); !full.ok()) return PendingState::Ready(full);
  PartitionInput input = client::InputOf(table, call, *state);
  client::ErrorFeedback::Chosen chosen = client::ChooseLargest(table.feedback.get(), input);
  std::shared_ptr<client::SplitPush> split;
  const auto hand_over = [&](Request part) {
    if (split == nullptr) split = MakeRecycled<client::SplitPush>(bytes);
    PendingState unused(true);
    calls_.BeginPart(std::move(part), deadline_us, split,
                     [&](Call<void()> begun) { return hand_over_.Begin(std::move(begun), unused); });
  };
  Result<Request> rest = PreparePush(input, loop_.pool(), std::ref(hand_over));
  return Submit(std::move(rest), {.deadline_us = deadline_us,
                                  .reserved = bytes,
                                  .detached = !call.borrow,
                                  .awaited = call.borrow,
                                  .chosen = &chosen,
                                  .split = std::move(split)});
}

Pending TableVerbs::Pull(const TableHandle& table, const TableCall& call) {
  const auto state = loop_.Snapshot();
  if (Status wrong = client::CheckCall(table, call, *state); !wrong.ok()) return PendingState::Ready(wrong);
  return Submit(PreparePull(client::InputOf(table, call, *state), loop_.pool()),
                {.deadline_us = DeadlineUs(options_, call.timeout_ms)});
}

Result<std::vector<RowKey>> TableVerbs::Keys(const TableHandle& table, const TableCall& call) {
  std::vector<RowKey> keys;
  const auto state = loop_.Snapshot();
  if (Status wrong = client::CheckCall(table, call, *state); !wrong.ok()) return wrong;
  Pending asked = Submit(PrepareKeys(client::InputOf(table, call, *state), &keys, loop_.pool()),
                         {.deadline_us = DeadlineUs(options_, call.timeout_ms)});
  if (Status failed = asked.Wait(); !failed.ok()) return failed;
  return keys;
}

Status TableVerbs::EndStep(const TableHandle& table, bool last) {
  const wire::TableInfo& info = table.info;
  if (info.spec.staleness == kUnbounded)
    return {
        Code::kInvalidArgument,
        "table \"" + info.spec.name + "\" has no bound of staleness: only the steps of a bounded table end"};
  PendingState unused(true);
  return hand_over_.Begin(
      [this, id = info.id, last] {
        loop_.core().EndStep(id, last, LoopSide::NowUs());
        loop_.Publish();
      },
      unused);
}

Pending TableVerbs::Done(const TableHandle& table, const TableCall& call) { return Round(table, call, {}); }

Pending TableVerbs::PushPull(const std::shared_ptr<const TableHandle>& table, const TableCall& call) {
  if (Status wrong = client::CheckGiven(*table, call); !wrong.ok()) return PendingState::Ready(wrong);
  if (table->info.spec.mode == Mode::kSync) return Round(*table, call, {.pull_after = true});
  if (call.info != nullptr) *call.info = {};
  return AsyncPushPull(table, call);
}

Pending TableVerbs::Contribute(const TableHandle& table, const TableCall& call) {
  if (Status wrong = client::CheckGiven(table, call); !wrong.ok()) return PendingState::Ready(wrong);
  return Round(table, call, {.phase = client::RoundPhase::kContribute});
}

Pending TableVerbs::Round(const TableHandle& table, const TableCall& call, const RoundKind& kind) {
  const auto state = loop_.Snapshot();
  if (Status wrong = client::CheckCall(table, call, *state); !wrong.ok()) return PendingState::Ready(wrong);
  PartitionInput input = client::InputOf(table, call, *state);
  input.phase = kind.phase;
  input.pull_after = kind.pull_after;
  client::ErrorFeedback::Chosen chosen = client::ChooseLargest(table.feedback.get(), input);
  return Submit(PrepareRound(input, loop_.pool()),
                {.deadline_us = DeadlineUs(options_, call.timeout_ms), .info = call.info, .chosen = &chosen});
}

Pending TableVerbs::AsyncPushPull(const std::shared_ptr<const TableHandle>& handle, const TableCall& call) {
  const TableHandle& table = *handle;
  PushPullCall::Prepared both{.deadline_us = DeadlineUs(options_, call.timeout_ms), .reserved = call.bytes()};
  const auto state = loop_.Snapshot();
  if (Status wrong = client::CheckCall(table, call, *state); !wrong.ok()) return PendingState::Ready(wrong);
  PartitionInput input = client::InputOf(table, call, *state);
  input.borrow = true;                           // the caller waits for the pull anyway
  auto pull = PreparePull(input, loop_.pool());  // a wrong `out` is found before anything is sent
  if (!pull.ok()) return PendingState::Ready(pull.status());
  if (Status full = Reserve(table, both.reserved, both.deadline_us); !full.ok())
    return PendingState::Ready(full);
  const uint64_t reserved = both.reserved;
  PartitionInput gradient = input;
  client::ErrorFeedback::Chosen chosen = client::ChooseLargest(table.feedback.get(), gradient);
  auto push = PreparePush(gradient, loop_.pool());
  if (!push.ok()) {
    unacked_.Free(reserved);
    return PendingState::Ready(push.status());
  }
  both.push = std::move(*push);
  both.pull = std::move(*pull);
  auto pending = MakeRecycled<PendingState>(false);
  auto begun = MakeRecycled<PushPullCall>(loop_, unacked_, handle, call, pending, std::move(both));
  const Status posted = hand_over_.Begin([this, begun]() mutable { begun->Start(hand_over_.trip(), begun); },
                                         *pending, HandOver::Then::kWaits);
  if (!posted.ok()) {
    unacked_.Free(reserved);
    return PendingState::Ready(posted);
  }
  chosen.KeepRest();
  return PendingState::PendingOf(std::move(pending));
}

}  // namespace cairn
