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
  if (context_.registered() && UpdateOwners())
    AnswerAllParked({Code::kUnavailable, context_.name() + " is no longer the owner of some slots"});
  UpdateClients();
  UpdateTables(before.get());
  UpdateHold();
  CheckCaughtUp();
  CompareWithHeirs();
  RegateAll();
  if (!context_.EndOfJob().ok()) return AnswerAllParked(context_.EndOfJob());
  for (auto& [id, table] : tables_)
    if (table.sync()) Reconsider(table);
  DropSources();
  for (auto& [key, source] : sources_) TakeHeldFrames(source);
  StartCopies();
  FlushStreams();
  news_.Raise();
}

// A server that is gone sends nothing more that counts.
void ShardImpl::DropSources() {
  if (CAIRN_BUG(kEpochIgnored)) return;
  std::erase_if(sources_, [&](const auto& item) {
    return std::none_of(context_.state().servers.begin(), context_.state().servers.end(),
                        [&](const auto& server) { return server.incarnation == item.first.first; });
  });
  std::erase_if(replica_conns_, [&](const auto& item) { return !sources_.contains(item.second); });
}

void ShardImpl::UpdateClients() {
  for (const LiveClient& gone : clients_.Update(context_.state())) {
    if (!CAIRN_BUG(kDeathNotFenced)) slots_.Forget(gone.index);
    parked_.ForgetClient(gone.incarnation);
    if (context_.observer() != nullptr) context_.observer()->OnRetired(gone.incarnation);
  }
}

namespace {
// Whoever takes part, and the slots, are what they were: a table that was there before needs no look.
bool SameButTables(const wire::ClusterState& a, const wire::ClusterState& b) {
  return a.slots == b.slots && a.servers == b.servers && a.workers == b.workers && a.view == b.view &&
         a.views == b.views;
}
}  // namespace

void ShardImpl::UpdateTables(const wire::ClusterState* before) {
  DropTables();
  const bool only_new = before != nullptr && SameButTables(*before, context_.state());
  auto next = tables_.begin();
  for (const wire::TableInfo& info : context_.state().tables) {
    const bool is_new = next == tables_.end() || next->first != info.id;  // both are by id
    if (is_new) next = tables_.try_emplace(next, info.id);
    TableState& table = next++->second;
    if (only_new && !is_new) continue;
    if (is_new) table.info = info;  // what a table is never changes
    table.rows.resize(slots_.size());
    table_updates_ += slots_.size();
    for (uint32_t local = 0; local < slots_.size(); ++local) {
      if (!slots_[local].present()) {
        table.rows[local].reset();
      } else if (!table.rows[local]) {
        MakeRows(table, local);
        weights_.Add(local, table.sparse(), *table.rows[local]);
      }
    }
    if (table.sync()) UpdateRounds(table);
  }
}

void ShardImpl::MakeRows(TableState& table, uint32_t local, table::SlotTable::Purpose purpose) {
  table.rows[local] = table::SlotTable::Make(table.info, slots_[local].id,
                                             static_cast<uint32_t>(context_.state().slots.size()), arena_, purpose);
}

void ShardImpl::DropTables() {
  for (auto it = tables_.begin(); it != tables_.end();) {
    if (context_.state().FindTable(it->first) != nullptr) {
      ++it;
      continue;
    }
    for (const ParkedRequest& request : parked_.TakeTable(it->first))
      if (request.conn != ConnId{}) outbox_.SendError(request.conn, request.header, DroppedTable(it->first));
    dropped_tables_.Add(it->first, it->second.info.spec);
    it = tables_.erase(it);
  }
}

void ShardImpl::UpdateRounds(TableState& table) {
  table.rounds.resize(slots_.size());
  std::vector<Member> members;
  for (const wire::WorkerInfo& worker : context_.state().workers) {
    if (worker.join_view == ViewNumber{0}) continue;
    members.push_back({worker.incarnation, worker.rank, FirstRound(context_.state(), worker, table.info), {}});
  }
  table.marks.SetMembers(std::move(members));
  table.latest_start = Round{0};
  for (const wire::View& view : context_.state().views)
    for (const wire::TableRound& start : view.starts)
      if (start.table == table.info.id) table.latest_start = std::max(table.latest_start, start.round);
  RecountOpen(table);
}

void ShardImpl::RecountOpen(TableState& table) {
  table.at_lowest = 0;
  table.summed_at_lowest = 0;
  table.unclean_slots = 0;
  table.joined_slots = 0;
  bool first = true;
  for (uint32_t local = 0; local < table.rounds.size(); ++local) {
    if (!slots_[local].primary()) continue;
    const Round open = table.rounds[local].open();
    table.unclean_slots += table.rounds[local].unclean();
    table.joined_slots += table.rounds[local].all_joined();
    if (first || open < table.lowest_open) {
      table.lowest_open = open;
      table.at_lowest = 0;
      table.summed_at_lowest = 0;
    }
    if (first || open > table.highest_open) table.highest_open = open;
    first = false;
    if (open != table.lowest_open) continue;
    ++table.at_lowest;
    table.summed_at_lowest += table.rounds[local].summed() != nullptr;
  }
}

void ShardImpl::UpdateHold() {
  const bool begins = context_.state().pending_view != hold_view_;
  hold_view_ = context_.state().pending_view;
  if (begins) hold_rounds_.clear();
  for (auto& [id, table] : tables_) {
    if (!table.sync()) continue;
    if (hold_view_ == ViewNumber{0} || CAIRN_BUG(kNoHold)) table.held.reset();
    if (hold_view_ == ViewNumber{0} || table.at_lowest == 0) continue;
    Round start = Touched(table) ? table.highest_open.Next() : table.highest_open;
    auto said = std::find_if(hold_rounds_.begin(), hold_rounds_.end(),
                             [&, id = id](const wire::TableRound& r) { return r.table == id; });
    if (said == hold_rounds_.end()) {
      hold_rounds_.push_back({id, start});
    } else if (slots_came_) {
      said->round = start = std::max(said->round, start);  // slots came here: never less
    } else {
      continue;
    }
    if (!CAIRN_BUG(kNoHold)) table.held = start;
    if (slots_came_ && CAIRN_BUG(kHoldNotInherited)) table.held.reset();
  }
}

// Somebody takes part in the highest open round already. One that nobody has begun can wait for
// those who join: it may be long until it moves, and they start from the values before it.
bool ShardImpl::Touched(const TableState& table) const {
  const Round open = table.highest_open;
  for (const Member& member : table.marks.members())
    if (member.mark.given && member.mark.round >= open) return true;
  for (uint32_t local = 0; local < table.rounds.size(); ++local) {
    const SlotRound& round = table.rounds[local];
    if (!slots_[local].primary() || round.open() != open) continue;
    if (!round.contributions().empty() || round.summed() != nullptr) return true;
  }
  return false;
}

void ShardImpl::AnswerAllParked(const Status& error) {
  for (const ParkedRequest& request : parked_.TakeAll())
    if (request.conn != ConnId{}) outbox_.SendError(request.conn, request.header, error);
}

}  // namespace cairn::server
