#include "scheduler/core/journal.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/bounds.h"
#include "base/check.h"
#include "scheduler/rules/views.h"

namespace cairn::scheduler {
namespace {
constexpr uint64_t kLogBoundRecords = 8;
}  // namespace

Status Journal::Load(DurableState if_empty) {
  auto records = store_.Load();
  if (!records.ok()) return records.status();
  was_empty_ = records->empty();
  if (was_empty_) {
    durable_ = std::move(if_empty);
    return Status::Ok();
  }
  for (const auto& record : *records) log_bytes_ += record.size();
  auto last = DecodeRecord(records->back());  // each one is the whole state
  if (!last.ok()) return last.status();
  durable_ = std::move(*last);
  return Status::Ok();
}

DurableState Journal::Next() const {
  DurableState next = durable_;
  next.state.version = next.state.version.Next();
  return next;
}

Status Journal::Persist(const DurableState& next) {
  const std::vector<std::byte> record = EncodeRecord(next);
  const uint64_t bound = std::max(log_bytes_bound_, kLogBoundRecords * record.size());
  if (log_bytes_ + record.size() <= bound) {
    log_bytes_ += record.size();
    return store_.Append(record);
  }
  CAIRN_AT_BOUND(kLogBytes);
  log_bytes_ = record.size();
  return store_.Replace(record);
}

namespace {
// Epochs only rise, and a new primary has a new one.
void CheckOwnerFollows(const wire::SlotOwner& before, const wire::SlotOwner& after) {
  CAIRN_CHECK(after.epoch >= before.epoch && after.since >= before.since);
  CAIRN_CHECK(after.server == before.server || after.epoch > before.epoch);
}
}  // namespace

// Numbers that are told to nodes are never used twice, and a job that is over stays so.
void Journal::CheckFollows(const DurableState& next) const {
  const wire::ClusterState &before = durable_.state, &after = next.state;
  CAIRN_CHECK(after.version == before.version.Next());
  CAIRN_CHECK(after.term >= before.term && after.view >= before.view);
  CAIRN_CHECK(after.next_incarnation >= before.next_incarnation && after.next_table >= before.next_table);
  CAIRN_CHECK(after.pending_view == ViewNumber(0) || after.pending_view == after.view.Next());
  CAIRN_CHECK(after.failovers >= before.failovers && next.moves_done >= durable_.moves_done);
  CAIRN_CHECK(next.joined_ranks.size() >= durable_.joined_ranks.size());
  CAIRN_CHECK(next.nodes.size() >= durable_.nodes.size());
  CAIRN_CHECK(!durable_.over() || after.phase == before.phase);
  CAIRN_CHECK(before.slots.empty() || after.slots.size() == before.slots.size());
  for (size_t slot = 0; slot < before.slots.size(); ++slot)
    CheckOwnerFollows(before.slots[slot], after.slots[slot]);
  for (size_t i = 0; i < durable_.nodes.size(); ++i) {
    const NodeRecord &was = durable_.nodes[i], &is = next.nodes[i];
    CAIRN_CHECK(was.incarnation == is.incarnation && (was.fate == NodeFate::kLive || is.fate == was.fate));
  }
}

bool Journal::Commit(DurableState next) {
  if (!fatal_.ok()) return false;
  CheckFollows(next);
  DropUnusedViews(next.state);
  if (Status status = Persist(next); !status.ok()) {
    Fail(status);
    return false;
  }
  const wire::Phase before = durable_.state.phase;
  durable_ = std::move(next);
  ++commits_;
  if (observer_ != nullptr) observer_->OnState(durable_.state);
  listener_.OnCommitted(before);
  return true;
}

void Journal::Fail(const Status& why) {
  fatal_ = why.With("the scheduler's log");
  listener_.OnStoreFailed();
}

Status Journal::Confirm() {
  if (!fatal_.ok()) return fatal_;
  Status status = store_.Confirm();
  if (!status.ok() && status.code() != Code::kUnavailable) Fail(status);
  return status;
}

Status Journal::CommitUntold(DurableState next) {
  CheckFollows(next);
  if (Status status = Persist(next); !status.ok()) return status;
  durable_ = std::move(next);
  if (observer_ != nullptr) observer_->OnState(durable_.state);
  return Status::Ok();
}

}  // namespace cairn::scheduler
