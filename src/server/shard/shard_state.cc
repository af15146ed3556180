// A new state: who is let in, which slots and tables are here, who is awaited, and when to hold
// (docs/internals/consistency.md, rules 6, 14, 19 and 20).
#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "server/shard/shard_impl.h"

namespace cairn::server {

void ShardImpl::OnRegistered(uint32_t server_index, Incarnation incarnation) {
  if (context_.registered()) return;
  context_.Register(server_index, incarnation);
  if (!context_.has_state()) return;
  // The state came first: only now is it known which slots are ours.
  hold_view_ = ViewNumber{0};
  OnState(context_.ForgetState(), 0);
}

void ShardImpl::OnState(std::shared_ptr<const wire::ClusterState> state, int64_t now_us) {
  if (context_.has_state() && state->version <= context_.version()) return;
  const std::shared_ptr<const wire::ClusterState> before = context_.TakeState(std::move(state));
  if (passed_state_ && passed_state_->version <= context_.version()) passed_state_ = nullptr;
  if (now_us > context_.now_us()) context_.NoteTime(now_us);
  // A request may wait at a slot that moves away; its client finds the new owner.
  if (context_.registered() && roles_.Update())
    AnswerAllParked({Code::kUnavailable, context_.name() + " is no longer the owner of some slots"});
  UpdateClients();
  for (TableId dropped : tables_.Update(before.get()))
    for (const ParkedRequest& request : parked_.TakeTable(dropped))
      if (request.conn != ConnId{}) outbox_.SendError(request.conn, request.header, DroppedTable(dropped));
  UpdateHold();
  primary_side_.OnState();
  gate_.OnState();
  if (!context_.EndOfJob().ok()) return AnswerAllParked(context_.EndOfJob());
  for (auto& [id, table] : tables_.all())
    if (table.sync()) Reconsider(table);
  backup_side_.OnState();
  primary_side_.Flush();
  news_.Raise();
}

void ShardImpl::UpdateClients() {
  for (const LiveClient& gone : clients_.Update(context_.state())) {
    if (!CAIRN_BUG(kDeathNotFenced)) slots_.Forget(gone.index);
    parked_.ForgetClient(gone.incarnation);
    if (context_.observer() != nullptr) context_.observer()->OnRetired(gone.incarnation);
  }
}

void ShardImpl::UpdateHold() {
  const bool begins = context_.state().pending_view != hold_view_;
  hold_view_ = context_.state().pending_view;
  if (begins) hold_rounds_.clear();
  for (auto& [id, table] : tables_.all()) {
    if (!table.sync()) continue;
    if (hold_view_ == ViewNumber{0} || CAIRN_BUG(kNoHold)) table.rounds.EndHold();
    if (hold_view_ == ViewNumber{0} || table.rounds.empty()) continue;
    Round start = table.rounds.Touched(slots_) ? table.rounds.highest_open().Next() : table.rounds.highest_open();
    auto said = std::find_if(hold_rounds_.begin(), hold_rounds_.end(),
                             [&, id = id](const wire::TableRound& r) { return r.table == id; });
    if (said == hold_rounds_.end()) {
      hold_rounds_.push_back({id, start});
    } else if (slots_.totals().came) {
      said->round = start = std::max(said->round, start);  // slots came here: never less
    } else {
      continue;
    }
    if (!CAIRN_BUG(kNoHold)) table.rounds.HoldFrom(start);
    if (slots_.totals().came && CAIRN_BUG(kHoldNotInherited)) table.rounds.EndHold();
  }
}

void ShardImpl::AnswerAllParked(const Status& error) {
  for (const ParkedRequest& request : parked_.TakeAll())
    if (request.conn != ConnId{}) outbox_.SendError(request.conn, request.header, error);
}

}  // namespace cairn::server
