// Deadlines, log lines and ends: every call ends, and says who was missing.
#include <algorithm>
#include <utility>

#include "client/protocol/barrier_ranks.h"
#include "client/protocol/core.h"
#include "client/partition/scatter.h"

namespace cairn::client {
namespace {

constexpr size_t kNamedLinks = 3;

// "rank 1 is", "ranks 1, 3 are"
std::string RanksAre(const std::vector<uint32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text + (ranks.size() == 1 ? " is" : " are");
}

}  // namespace

void Core::CheckDeadlines(int64_t now_us) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_us) {
    const uint64_t id = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    Expire(id, now_us);
  }
}

void Core::Expire(uint64_t id, int64_t now_us) {
  auto it = requests_.find(id);
  if (it == requests_.end()) return;
  EndCall(id, WhatOf(it->second) + " was not finished in time: " + AwaitedBy(it->second, now_us), now_us);
}

// The caller is told; what others need of it goes on.
void Core::EndCall(uint64_t id, const std::string& text, int64_t now_us) {
  const auto it = requests_.find(id);
  Record& record = it->second;
  const Request::Kind kind = record.request.kind;
  const bool unknown = kind == Request::Kind::kPush && record.sent;
  const Status status = unknown ? Status(Code::kOutcomeUnknown, text + "; it may still be applied")
                                : Status(Code::kDeadlineExceeded, text);
  TellCaller(record, status);
  const TableId table = record.request.table;
  if (!record.sent) {
    const bool parks = record.parks;
    const uint64_t push = record.request.push;
    requests_.erase(it);
    if (parks) {
      OrderOf(table)->Remove(id);
      return ReleaseRounds(table, now_us);
    }
    std::erase(held_, id);
    if (push != 0) DropHeldParts(push, status);
    return ReleaseHeld(now_us);
  }
  // A numbered push and a round stay: a gap would block the slots, a missing part the others. But
  // nothing may refer to the caller's memory any more.
  for (uint32_t i = 0; i < record.frames.size(); ++i) {
    ShardPart& part = record.request.parts[i];
    DropTargets(part);
    const uint64_t frame = record.frames[i].id;
    if (frame == 0) continue;
    ShardLink* link = links_.At(part.server, part.thread);
    if (kind == Request::Kind::kPull) {
      link->Drop(frame);
    } else {
      link->DisownBorrowed(frame, now_us);
    }
  }
  if (kind == Request::Kind::kPull) requests_.erase(it);
  if (kind == Request::Kind::kContribute) OrderOf(table)->Expired(id);
}

// The other parts of a push of which nothing was sent.
void Core::DropHeldParts(uint64_t push, const Status& why) {
  std::erase_if(held_, [&](uint64_t id) {
    const auto it = requests_.find(id);
    if (it->second.request.push != push) return false;
    TellCaller(it->second, why);
    deadlines_.erase({it->second.request.deadline_us, id});
    requests_.erase(it);
    return true;
  });
}

std::string Core::TableName(TableId table) const {
  const wire::TableInfo* info = scheduler_.state()->FindTable(table);
  return info == nullptr ? "table " + std::to_string(table.value) : "table \"" + info->spec.name + "\"";
}

std::string Core::WhatOf(const Record& record) const {
  const std::string name = TableName(record.request.table);
  switch (record.request.kind) {
    case Request::Kind::kPush: return "a push to " + name;
    case Request::Kind::kDecide:
      return "the decision on round " + std::to_string(record.round.value) + " of " + name;
    case Request::Kind::kRound:
    case Request::Kind::kContribute:
      return record.sent ? "round " + std::to_string(record.round.value) + " of " + name
                         : "a round of " + name;
    case Request::Kind::kPull: break;
  }
  const bool after = record.parks && record.sent && record.round.value > 0;
  return "a pull of " + name + (after ? " after round " + std::to_string(record.round.value - 1) : "");
}

std::string Core::AwaitedBy(const Record& record, int64_t now_us) const {
  if (!record.sent) return "earlier requests of this worker are not finished";
  // If it is only ourselves that a shard waits for, something does not get through.
  const bool only_us = record.missing_ranks.size() == 1 && record.missing_ranks[0] == rank().value;
  if (!record.missing_ranks.empty() && !only_us) {
    const std::vector<uint32_t> in_barrier = MissingInBarrier(record);
    return RanksAre(record.missing_ranks) + " missing" +
           (in_barrier.empty() ? "" : "; " + RanksAre(in_barrier) + " in a barrier");
  }
  if (record.when_assigned && links_.ready()) return "nobody has assigned its values yet";
  std::vector<const ShardLink*> silent;
  for (size_t i = 0; i < record.frames.size(); ++i) {
    if (record.frames[i].id == 0) continue;
    const ShardPart& part = record.request.parts[i];
    const ShardLink* link = links_.At(part.server, part.thread);
    if (std::find(silent.begin(), silent.end(), link) == silent.end()) silent.push_back(link);
  }
  // Without the scheduler nobody takes the place of a server that is gone; otherwise it may know why they
  // are silent (too few copies, say).
  const std::string scheduler =
      scheduler_.Silent(now_us) ? scheduler_.Awaiting(now_us) : scheduler_.said_awaiting();
  if (silent.empty()) {
    return "its servers have a newer state of the cluster, which has not come yet" +
           (scheduler.empty() ? "" : ": " + scheduler);
  }
  std::string text = "no answer from ";
  for (size_t i = 0; i < std::min(silent.size(), kNamedLinks); ++i) {
    const std::string trouble = silent[i]->Trouble();
    text += (i == 0 ? "" : ", ") + silent[i]->Describe() + (trouble.empty() ? "" : " (" + trouble + ")");
  }
  if (silent.size() > kNamedLinks) text += " and " + std::to_string(silent.size() - kNamedLinks) + " more";
  if (!record.waits_for.empty()) text += ", which waits for " + record.waits_for;
  // Healthy servers may not answer while a partition has too few copies: then that comes first.
  if (!scheduler_.Silent(now_us) && scheduler_.said_blocked())
    return scheduler + "; " + text;
  return text + (scheduler.empty() ? "" : "; " + scheduler);
}

std::vector<uint32_t> Core::MissingInBarrier(const Record& record) const {
  std::vector<uint32_t> there = RanksInBarrier(*scheduler_.state(), scheduler_.said_awaiting());
  std::erase_if(there, [&](uint32_t rank) {
    return std::find(record.missing_ranks.begin(), record.missing_ranks.end(), rank) ==
           record.missing_ranks.end();
  });
  return there;
}

void Core::LogWaiting(int64_t now_us) {
  if (now_us < log_us_ || start_) return;
  log_us_ = now_us + options_.still_waiting_log_us;
  const std::string who = "rank " + std::to_string(rank().value) + " ";
  const int64_t since_us = now_us - options_.still_waiting_log_us;
  for (const auto& [id, record] : requests_) {
    if (record.ended || record.begun_us > since_us) continue;
    const std::vector<uint32_t> in_barrier = MissingInBarrier(record);
    const std::string what = who + "waits for " + WhatOf(record);
    // The classic mistake has its own words: nobody is late, they wait for each other.
    if (!in_barrier.empty() && in_barrier == record.missing_ranks)
      return log_(RanksAre(in_barrier) + " in a barrier, " + what);
    return log_(what + ": " + AwaitedBy(record, now_us));
  }
  const std::string call = calls_.Describe(since_us, now_us);
  if (!call.empty()) log_(who + call);
}

std::string Core::StartAwaits(int64_t now_us) const {
  if (joined_ == nullptr || links_.empty()) {
    const std::string awaiting = scheduler_.Awaiting(now_us);
    return awaiting.empty() ? "waiting for the scheduler to let this worker in" : awaiting;
  }
  for (const Links::Place& place : links_.all()) {
    const ShardLink& link = *place.link;
    if (!link.ready()) return "no answer from " + link.Describe() + " yet (" + link.Trouble() + ")";
  }
  return "";
}

void Core::SettleStart(int64_t now_us) {
  if (!start_) return;
  Status result;
  if (joined_ == nullptr || !links_.ready()) {
    if (now_us >= start_->log_us) {
      start_->log_us = now_us + kStartLogUs;
      log_(StartAwaits(now_us));
    }
    if (now_us < start_->deadline_us) return;
    result = {Code::kDeadlineExceeded, "the client could not start in time: " + StartAwaits(now_us)};
  }
  completions_.Add([done = std::move(start_->done), result] { done(result); });
  start_.reset();
}

void Core::Cancel(int64_t) {
  if (fatal_.ok()) EndEverything({Code::kCancelled, "the client was closed while the call was under way"});
  completions_.Run();
}

void Core::EndEverything(Status why) {
  if (!fatal_.ok()) return;
  fatal_ = why;
  // Connections first: none of them may read a caller's memory after its call has ended.
  for (Links::Place& place : links_.all()) place.link->Stop();
  scheduler_.Stop();
  for (auto& [id, record] : requests_) {
    const bool unknown = record.request.kind == Request::Kind::kPush && record.sent;
    TellCaller(record, unknown
                           ? Status(Code::kOutcomeUnknown, WhatOf(record) + " was not acknowledged, it may " +
                                                               "have been applied: " + why.message())
                           : why);
  }
  requests_.clear();
  deadlines_.clear();
  held_.clear();
  orders_.clear();
  unacked_bytes_ = 0;
  calls_.EndAll(why);
  if (start_) completions_.Add([done = std::move(start_->done), why] { done(why); });
  start_.reset();
}

}  // namespace cairn::client
