#include "scheduler/core/seat.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "wire/control.h"

namespace cairn::scheduler {
namespace {
constexpr int64_t kLongWaitUs = 20'000;  // of a call that writes: a disk's or etcd's hesitation
}  // namespace

void SchedulerSeat::OnStandby(const std::string& leader) {
  if (leader_ == leader) return;
  leader_ = leader;
  if (!leader.empty()) log_("standing by: the scheduler at " + leader + " leads");
}

void SchedulerSeat::Lead(std::unique_ptr<Scheduler> scheduler) {
  CAIRN_CHECK(scheduler_ == nullptr && scheduler != nullptr);
  scheduler_ = std::move(scheduler);
  LookForEnd();
}

// Without etcd nothing can be decided, and another one may lead already: nodes that stay here would be missed
// there. So they are sent away; whoever finds no other leader comes again.
void SchedulerSeat::OnEtcd(bool heard) {
  if (over() || !leadership_.OnEtcd(heard)) return;
  log_(!heard ? "etcd has not answered for so long that another scheduler may lead: this one stops answering"
              : "etcd answers again, and this scheduler still leads");
  if (!heard || !leads()) return;
  for (ConnId conn : connections_.TakeEnded()) {
    if (!leads()) return;
    Call([&](int64_t now_us) { scheduler_->OnDisconnect(conn, now_us); });
  }
}

void SchedulerSeat::SendAway(ConnId conn) {
  const std::string where = leader_.empty() ? "; nobody leads yet" : "; the leader is at " + leader_;
  const wire::Refusal refusal{0, Code::kUnavailable,
                              leadership_.away() ? "this scheduler can't reach etcd, another one may lead"
                                                 : "this scheduler is a standby" + where};
  network_.Send(conn, wire::EncodeControl(refusal, pool_));
  network_.Close(conn);
  connections_.SendAway(conn);
}

// Whoever holds the key and hears nobody keeps those who could lead from it.
void SchedulerSeat::Resign() {
  log_("nobody is heard, so another scheduler should lead: this one stands again when a node finds it");
  leadership_.Resign(driver_.NowUs());
  for (ConnId conn : connections_.TakeAll()) network_.Close(conn);
  driver_.EndReign(std::move(scheduler_));
  driver_.StandBack();
}

void SchedulerSeat::OnMessage(ConnId conn, const wire::InFrame& frame) {
  if (over()) return;
  if (leadership_.OnFound()) driver_.Stand();
  if (!answers()) return SendAway(conn);
  if (options_.several) connections_.Deliver(conn);
  Call([&](int64_t now_us) { scheduler_->OnMessage(conn, frame, now_us); });
}

void SchedulerSeat::OnDisconnect(ConnId conn) {
  if (over()) return;
  if (options_.several && !connections_.End(conn, answers())) return;
  Call([&](int64_t now_us) { scheduler_->OnDisconnect(conn, now_us); });
}

// What was sent to the scheduler while it waited for its store is handled behind that.
template <class Function>
void SchedulerSeat::Call(Function function) {
  const int64_t start_us = driver_.NowUs();
  function(start_us);
  if (driver_.dead()) return;
  if (const int64_t waited_us = driver_.NowUs() - start_us; waited_us >= kLongWaitUs)
    scheduler_->OnWaited(waited_us);
  LookForEnd();
}

void SchedulerSeat::OnTick() {
  if (over()) return;
  if (leadership_.OnTick(driver_.NowUs())) driver_.Stand();
  if (!answers()) return;
  Call([&](int64_t now_us) { scheduler_->OnTick(now_us); });
  if (!driver_.dead() && !over() && options_.several && scheduler_->cut_off()) Resign();
}

int64_t SchedulerSeat::NextTickUs(int64_t most_us) const {
  return answers() ? std::min(most_us, scheduler_->next_tick_us()) : most_us;
}

void SchedulerSeat::LookForEnd() {
  if (const Status fatal = scheduler_->fatal(); !fatal.ok()) return EndNow(fatal);
  if (!scheduler_->finished()) return;
  const wire::ClusterState& state = scheduler_->state();
  if (!over()) final_status_ = scheduler_->StatusJson(driver_.NowUs());
  End(state.phase == wire::Phase::kFailed ? Status(Code::kJobFailed, state.failure) : Status::Ok());
}

// Nothing may be told after a failed append, or once another one leads: nothing is flushed either.
void SchedulerSeat::EndNow(const Status& why) {
  if (over()) return;
  result_ = why;
  driver_.OnOver(why, true);
}

void SchedulerSeat::End(const Status& why) {
  if (over()) return;
  result_ = why;
  driver_.OnOver(why, false);
}

}  // namespace cairn::scheduler
