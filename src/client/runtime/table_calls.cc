// ClientImpl's calls on tables: what a caller's thread prepares, and how its end reaches it.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "client/runtime/client_impl.h"
#include "client/partition/rounding.h"

namespace cairn {
namespace {
using client::PartitionInput;
using client::Request;
using transport::Loop;

const char* ElementName(ElementType type) { return type == ElementType::kFloat32 ? "float32" : "int64"; }

std::string InMiB(uint64_t bytes) {
  const uint64_t tenths = bytes * 10 / (uint64_t{1} << 20);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}
}  // namespace

ClientImpl::WeakFrames ClientImpl::BorrowingFrames(const Request& request) {
  WeakFrames frames;
  for (const client::ShardPart& part : request.parts) {
    if (part.frame && part.borrowed) frames.emplace_back(part.frame);
  }
  return frames;
}

// What partition.h can't see: the type of the arrays, and a table that is no more.
Status ClientImpl::CheckCall(const TableHandle& table, const TableCall& call,
                             const wire::ClusterState& state) {
  const wire::TableInfo& info = table.info;
  const auto named = [&] { return "table \"" + info.spec.name + "\""; };
  if (call.element != info.spec.element) {
    return {Code::kInvalidArgument,
            named() + " holds " + ElementName(info.spec.element) +
                ", the arrays of this call " + ElementName(call.element)};
  }
  if (state.FindTable(info.id) == nullptr && info.id < state.next_table) {
    return {Code::kNotFound,
            named() + " was dropped: create it again and use the new handle"};
  }
  return Status::Ok();
}

// An empty gradient of a dense table would otherwise pass for a bare done.
Status ClientImpl::CheckGiven(const TableHandle& table, const TableCall& call) {
  const TableSpec& spec = table.info.spec;
  const bool none = call.options.joined || call.options.not_finite;
  if (spec.kind != TableKind::kDense || none || !call.values.empty()) return Status::Ok();
  return {Code::kInvalidArgument, "table \"" + spec.name + "\" has " + std::to_string(spec.size) +
                                      " elements, push has 0: give the whole table, or a Done"};
}

PartitionInput ClientImpl::InputOf(const TableHandle& table, const TableCall& call,
                                   const wire::ClusterState& state) {
  const PushOptions& options = call.options;
  const bool plans = table.plans != nullptr && !state.slots.empty();
  return {.state = &state,
          .table = &table.info,
          .keys = call.keys,
          .values = call.values,
          .out = call.out,
          .hyper = options.hyper,
          .weight = options.weight,
          .weighted = options.weighted,
          .mask = options.mask,
          .borrow = options.borrow,
          .op = options.op,
          .column = options.column,
          .value_scale = options.value_scale,
          .joined = options.joined,
          .not_finite = options.not_finite,
          .scale = options.scale,
          .skip = options.skip,
          .pull_column = call.pull.column,
          .when_assigned = call.pull.when_assigned,
          .plan = plans ? table.plans->Get(table.info, state) : nullptr};
}

client::ErrorFeedback::Chosen ClientImpl::Choose(const TableHandle& table, PartitionInput& input) {
  return client::ChooseLargest(table.feedback.get(), input);
}

// `whole`: bytes of the push.
void ClientImpl::SubmitEarly(Request part, int64_t deadline_us, uint64_t whole,
                             const std::shared_ptr<client::EarlyParts>& parts) {
  part.deadline_us = deadline_us;
  part.done = [this, parts](const Status& status) {
    --calls_;
    Publish();
    parts->Ended(status);
  };
  auto call = [this, part = std::move(part), whole, parts]() mutable {
    if (parts->refused()) return;
    ++calls_;
    parts->Begun();
    if (parts->push == 0) {
      parts->trip = trip_;
      parts->push = ++pushes_in_parts_;
      part.room = whole;
    }
    part.trip = parts->trip;
    part.push = parts->push;
    core_->Submit(std::move(part), Loop::NowUs());
    Publish();
  };
  Pending::State unused(true);  // a closed client refuses the rest, and so the call
  (void)Begin(std::move(call), unused);
}

Pending ClientImpl::Submit(Result<Request> request, const Submission& submission) {
  if (!request.ok()) {
    unacked_.Free(submission.reserved);
    return Ready(request.status());
  }
  if (IsRound(request->kind)) waits_->NoteCaller();
  auto state = MakeRecycled<Pending::State>(submission.detached);
  request->deadline_us = submission.deadline_us;
  request->info = submission.info;
  const auto end = [this, state, reserved = submission.reserved](const Status& status) {
    unacked_.Free(reserved);
    state->Complete(status);
  };
  const auto early = submission.early;
  request->done = [this, end, early, frames = BorrowingFrames(*request)](const Status& status) {
    --calls_;
    Disown(frames);
    Publish();
    early ? early->Ended(status) : end(status);
  };
  auto call = [this, request = std::move(*request), end, early]() mutable {
    ++calls_;
    request.trip = early ? early->trip : trip_;
    if (early) {
      const bool refused = early->refused();
      early->Begun();
      early->all_ended = [end, &parts = *early] { end(parts.outcome()); };
      if (refused) return request.done(early->outcome());
      request.push = early->push;
    }
    core_->Submit(std::move(request), Loop::NowUs());
    Publish();
  };
  const Status posted = Begin(std::move(call), *state, submission.awaited ? Then::kWaits : Then::kGoesOn);
  if (!posted.ok()) {
    unacked_.Free(submission.reserved);
    if (submission.early == nullptr) return Ready(posted);
    return Ready({Code::kOutcomeUnknown, posted.message() + "; parts of this push were sent, and may have been applied"});
  }
  if (submission.chosen != nullptr) submission.chosen->KeepRest();
  return Pending(std::move(state));
}

// The callers' memory that these frames refer to is about to be given back.
void ClientImpl::Disown(std::span<const std::weak_ptr<wire::Frame>> frames) {
  if (frames.empty() || network_.queued_bytes() == 0) return;
  for (const auto& weak : frames) {
    if (const auto frame = weak.lock()) network_.Disown(frame.get());
  }
}

// Waits at the bound of unacknowledged bytes, until the deadline.
Status ClientImpl::Reserve(const TableHandle& table, uint64_t bytes, int64_t deadline_us) {
  constexpr int64_t kAskUs = 50'000;
  if (unacked_.Reserve(bytes, 0)) return Status::Ok();
  // What this thread has begun in its trip takes up room until it is sent.
  SendTripHere();
  while (true) {
    const int64_t until_us =
        options_.interrupted ? std::min(deadline_us, Loop::NowUs() + kAskUs) : deadline_us;
    if (unacked_.Reserve(bytes, until_us)) return Status::Ok();
    {
      std::lock_guard lock(mutex_);
      if (closed_) return closed_why_;
    }
    if (options_.interrupted && options_.interrupted()) {
      return {Code::kCancelled,
              "push to table \"" + table.info.spec.name + "\": interrupted; nothing was sent"};
    }
    if (until_us >= deadline_us) break;
  }
  return {Code::kDeadlineExceeded, "push to table \"" + table.info.spec.name + "\": no room for it, " +
                                       InMiB(unacked_.bytes()) +
                                       " are not yet acknowledged by the servers (the " + "bound is " +
                                       InMiB(unacked_.bound()) + "); nothing was sent"};
}

Result<Client::Traffic> ClientImpl::Traffic() {
  auto traffic = std::make_shared<Client::Traffic>();
  const Status asked = BlockingCall(
      [this, traffic](int64_t, client::ClientCore::Done done) {
        *traffic = {network_.bytes_out(), network_.bytes_in()};
        done(Status::Ok());
      },
      0);
  if (!asked.ok()) return asked;
  return *traffic;
}

Pending ClientImpl::Push(const TableHandle& table, const TableCall& call) {
  if (Status wrong = CheckGiven(table, call); !wrong.ok()) return Ready(wrong);
  if (!client::IsNumbered(table.info.spec, call.options.op)) return Round(table, call, {});
  if (call.options.info != nullptr) *call.options.info = {};
  const int64_t deadline_us = DeadlineUs(call.options.timeout_ms);
  const auto state = Snapshot();
  if (Status wrong = CheckCall(table, call, *state); !wrong.ok()) return Ready(wrong);
  const uint64_t bytes = call.bytes();
  if (Status full = Reserve(table, bytes, deadline_us); !full.ok()) return Ready(full);
  PartitionInput input = InputOf(table, call, *state);
  client::ErrorFeedback::Chosen chosen = Choose(table, input);
  std::shared_ptr<client::EarlyParts> early;
  const auto hand_over = [&](Request part) {
    if (early == nullptr) early = MakeRecycled<client::EarlyParts>();
    SubmitEarly(std::move(part), deadline_us, bytes, early);
  };
  Result<Request> rest = PreparePush(input, pool_, std::ref(hand_over));
  return Submit(std::move(rest), {.deadline_us = deadline_us,
                                  .reserved = bytes,
                                  .detached = !call.options.borrow,
                                  .awaited = call.options.borrow,
                                  .chosen = &chosen,
                                  .early = std::move(early)});
}

Pending ClientImpl::Pull(const TableHandle& table, const TableCall& call) {
  const auto state = Snapshot();
  if (Status wrong = CheckCall(table, call, *state); !wrong.ok()) return Ready(wrong);
  return Submit(PreparePull(InputOf(table, call, *state), pool_),
                {.deadline_us = DeadlineUs(call.pull.timeout_ms)});
}

Result<std::vector<RowKey>> ClientImpl::Keys(const TableHandle& table, const PullOptions& options) {
  std::vector<RowKey> keys;
  const auto state = Snapshot();
  const TableCall call{.element = table.info.spec.element, .pull = options};
  if (Status wrong = CheckCall(table, call, *state); !wrong.ok()) return wrong;
  Pending asked = Submit(PrepareKeys(InputOf(table, call, *state), &keys, pool_),
                         {.deadline_us = DeadlineUs(options.timeout_ms)});
  if (Status failed = asked.Wait(); !failed.ok()) return failed;
  return keys;
}

Pending ClientImpl::Done(const TableHandle& table, const PushOptions& options) {
  return Round(table, {.element = table.info.spec.element, .options = options}, {});
}

Pending ClientImpl::PushPull(const std::shared_ptr<const TableHandle>& table,
                             const TableCall& call) {
  if (Status wrong = CheckGiven(*table, call); !wrong.ok()) return Ready(wrong);
  if (table->info.spec.mode == Mode::kSync) return Round(*table, call, {.pull_after = true});
  if (call.options.info != nullptr) *call.options.info = {};
  return AsyncPushPull(table, call);
}

Pending ClientImpl::Contribute(const TableHandle& table, const TableCall& call) {
  if (Status wrong = CheckGiven(table, call); !wrong.ok()) return Ready(wrong);
  return Round(table, call, {.phase = client::RoundPhase::kContribute});
}

Pending ClientImpl::Round(const TableHandle& table, const TableCall& call, const RoundKind& kind) {
  const auto state = Snapshot();
  if (Status wrong = CheckCall(table, call, *state); !wrong.ok()) return Ready(wrong);
  PartitionInput input = InputOf(table, call, *state);
  input.phase = kind.phase;
  input.pull_after = kind.pull_after;
  client::ErrorFeedback::Chosen chosen = Choose(table, input);
  return Submit(PrepareRound(input, pool_), {.deadline_us = DeadlineUs(call.options.timeout_ms),
                                             .info = call.options.info,
                                             .chosen = &chosen});
}

}  // namespace cairn
