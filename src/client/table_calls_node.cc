// ClientImpl's calls on tables: what a caller's thread prepares, and how its end reaches it.
#include <string>
#include <utility>
#include <vector>

#include "client/client_node.h"

namespace cairn {
namespace {
using client::PartitionInput;
using client::Request;
using transport::Loop;

bool Borrows(const wire::Frame& frame) {
  for (std::span<const std::byte> values : frame.values) {
    const std::byte* owned = frame.owned.data();
    if (!values.empty() && (values.data() < owned || values.data() >= owned + frame.owned.size()))
      return true;
  }
  return false;
}

// Weak, so that the core may see from the count whether anybody else holds a frame.
std::vector<std::weak_ptr<wire::Frame>> BorrowingFrames(const Request& request) {
  std::vector<std::weak_ptr<wire::Frame>> frames;
  for (const client::ShardPart& part : request.parts) {
    if (part.frame && Borrows(*part.frame)) frames.emplace_back(part.frame);
  }
  return frames;
}

const char* ElementName(ElementType type) { return type == ElementType::kFloat32 ? "float32" : "int64"; }

uint64_t PushBytes(const TableCall& call) { return call.values.size() + call.keys.size_bytes(); }

std::string InMiB(uint64_t bytes) {
  const uint64_t tenths = bytes * 10 / (uint64_t{1} << 20);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}
}  // namespace

// What partition.h can't see: the type of the arrays, and a table that is no more.
Status ClientImpl::CheckCall(const TableHandle& table, const TableCall& call,
                             const wire::ClusterState& state) {
  const wire::TableInfo& info = table.info;
  const std::string named = "table \"" + info.spec.name + "\"";
  if (call.element != info.spec.element) {
    return {Code::kInvalidArgument, named + " holds " + ElementName(info.spec.element) +
                                        ", the arrays of this call " + ElementName(call.element)};
  }
  if (state.FindTable(info.id) == nullptr && info.id < state.next_table) {
    return {Code::kNotFound, named + " was dropped: create it again and use the new handle"};
  }
  return Status::Ok();
}

PartitionInput ClientImpl::InputOf(const TableHandle& table, const TableCall& call,
                                   const wire::ClusterState& state) {
  return {.state = &state,
          .table = &table.info,
          .keys = call.keys,
          .values = call.values,
          .out = call.out,
          .hyper = call.options.hyper,
          .weight = call.options.weight};
}

Pending ClientImpl::Submit(Result<Request> request, const Submission& submission) {
  if (!request.ok()) {
    unacked_.Free(submission.reserved);
    return Ready(request.status());
  }
  auto state = std::make_shared<Pending::State>(submission.detached);
  auto held = std::make_shared<Request>(std::move(*request));
  held->deadline_us = submission.deadline_us;
  held->done = [this, state, reserved = submission.reserved, frames = BorrowingFrames(*held)](Status status) {
    --calls_;
    Disown(frames);
    Publish();
    unacked_.Free(reserved);
    state->Complete(std::move(status));
  };
  const Status posted = Post([this, held] {
    ++calls_;
    core_->Submit(std::move(*held), Loop::NowUs());
    Publish();
  });
  if (!posted.ok()) {
    unacked_.Free(submission.reserved);
    return Ready(posted);
  }
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
  if (unacked_.Reserve(bytes, deadline_us)) return Status::Ok();
  {
    std::lock_guard lock(mutex_);
    if (closed_) return closed_why_;
  }
  return {Code::kDeadlineExceeded, "push to table \"" + table.info.spec.name + "\": no room for it, " +
                                       InMiB(unacked_.bytes()) +
                                       " are not yet acknowledged by the servers (the " + "bound is " +
                                       InMiB(unacked_.bound()) + "); nothing was sent"};
}

Pending ClientImpl::Push(const TableHandle& table, const TableCall& call) {
  if (table.info.spec.mode == Mode::kSync) return Round(table, call, /*pull_after=*/false);
  const int64_t deadline_us = DeadlineUs(call.options.timeout_ms);
  const auto state = Snapshot();
  if (Status wrong = CheckCall(table, call, *state); !wrong.ok()) return Ready(wrong);
  const uint64_t bytes = PushBytes(call);
  if (Status full = Reserve(table, bytes, deadline_us); !full.ok()) return Ready(full);
  return Submit(PreparePush(InputOf(table, call, *state), pool_),
                {.deadline_us = deadline_us, .reserved = bytes, .detached = true});
}

Pending ClientImpl::Pull(const TableHandle& table, const TableCall& call) {
  const auto state = Snapshot();
  if (Status wrong = CheckCall(table, call, *state); !wrong.ok()) return Ready(wrong);
  return Submit(PreparePull(InputOf(table, call, *state), pool_),
                {.deadline_us = DeadlineUs(call.options.timeout_ms)});
}

Pending ClientImpl::Done(const TableHandle& table, const PushOptions& options) {
  return Round(table, {.element = table.info.spec.element, .options = options}, /*pull_after=*/false);
}

Pending ClientImpl::PushPull(const TableHandle& table, const TableCall& call) {
  if (table.info.spec.mode == Mode::kSync) return Round(table, call, /*pull_after=*/true);
  return AsyncPushPull(table, call);
}

Pending ClientImpl::Round(const TableHandle& table, const TableCall& call, bool pull_after) {
  const auto state = Snapshot();
  if (Status wrong = CheckCall(table, call, *state); !wrong.ok()) return Ready(wrong);
  PartitionInput input = InputOf(table, call, *state);
  input.pull_after = pull_after;
  return Submit(PrepareRound(input, pool_), {.deadline_us = DeadlineUs(call.options.timeout_ms)});
}

// A push and, behind it on the same connections, a pull: one round trip. The pull's answer counts
// only if the push had ended before it and no connection was rewound meanwhile: otherwise the pull
// may have overtaken the push, and is repeated once the push has ended.
struct ClientImpl::PushPullCall {
  const TableHandle table;
  const TableCall call;
  std::shared_ptr<Pending::State> state;
  int64_t deadline_us = 0;
  uint64_t reserved = 0;
  Request push, pull;
  uint64_t rewinds = 0;  // of the core, when both were submitted
  bool push_ended = false;
  Status push_status;
  bool pull_running = false;
  bool pull_after_push = false;  // the pull was submitted when the push had ended
  bool pull_counts = false;
  Status pull_status;
};

Pending ClientImpl::AsyncPushPull(const TableHandle& table, const TableCall& call) {
  auto both = std::make_shared<PushPullCall>(PushPullCall{table, call});
  both->deadline_us = DeadlineUs(call.options.timeout_ms);
  both->reserved = PushBytes(call);
  const auto state = Snapshot();
  if (Status wrong = CheckCall(table, call, *state); !wrong.ok()) return Ready(wrong);
  const PartitionInput input = InputOf(table, call, *state);
  auto pull = PreparePull(input, pool_);  // a wrong `out` is found before anything is sent
  if (!pull.ok()) return Ready(pull.status());
  if (Status full = Reserve(table, both->reserved, both->deadline_us); !full.ok()) return Ready(full);
  auto push = PreparePush(input, pool_);
  if (!push.ok()) {
    unacked_.Free(both->reserved);
    return Ready(push.status());
  }
  both->push = std::move(*push);
  both->pull = std::move(*pull);
  both->state = std::make_shared<Pending::State>(false);
  if (Status posted = Post([this, both] { StartBoth(both); }); !posted.ok()) {
    unacked_.Free(both->reserved);
    return Ready(posted);
  }
  return Pending(both->state);
}

void ClientImpl::StartBoth(const std::shared_ptr<PushPullCall>& both) {
  ++calls_;
  both->rewinds = core_->rewinds();
  const bool held_back = !core_->has_room();  // such a push would be overtaken
  both->push.deadline_us = both->deadline_us;
  both->push.done = [this, both](Status status) {
    both->push_ended = true;
    both->push_status = std::move(status);
    unacked_.Free(both->reserved);
    GoOn(both);
  };
  core_->Submit(std::move(both->push), Loop::NowUs());
  if (!held_back && !both->push_ended) StartPull(both, std::move(both->pull));
  Publish();
}

void ClientImpl::StartPull(const std::shared_ptr<PushPullCall>& both, Request pull) {
  both->pull_running = true;
  both->pull_after_push = both->push_ended;
  pull.deadline_us = both->deadline_us;
  pull.done = [this, both](Status status) {
    both->pull_running = false;
    both->pull_status = std::move(status);
    both->pull_counts = both->pull_after_push || (both->push_ended && core_->rewinds() == both->rewinds);
    GoOn(both);
  };
  core_->Submit(std::move(pull), Loop::NowUs());
}

// After the end of either. Nothing is completed while a pull may still write to the caller's array.
void ClientImpl::GoOn(const std::shared_ptr<PushPullCall>& both) {
  if (both->pull_running || !both->push_ended) return;
  if (both->push_status.ok() && both->pull_status.ok() && !both->pull_counts) {
    auto pull = PreparePull(InputOf(both->table, both->call, *core_->state()), pool_);
    if (pull.ok()) return StartPull(both, std::move(*pull));
    both->pull_status = pull.status();
  }
  --calls_;
  Publish();
  both->state->Complete(both->push_status.ok() ? both->pull_status : both->push_status);
}

}  // namespace cairn
