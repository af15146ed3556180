#include "client/protocol/waiting_words.h"

#include <algorithm>
#include <cstddef>

#include "client/protocol/barrier_ranks.h"
#include "client/protocol/table_name.h"

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

std::string WaitingWords::WhatOf(const RequestRecord& record) const {
  const std::string name = TableName(*scheduler_.state(), record.request.table);
  switch (record.request.kind) {
    case Request::Kind::kPush: return "a push to " + name;
    case Request::Kind::kDecide:
      return "the decision on round " + std::to_string(record.round.value) + " of " + name;
    case Request::Kind::kRound:
    case Request::Kind::kContribute:
      return record.sent ? "round " + std::to_string(record.round.value) + " of " + name
                         : "a round of " + name;
    case Request::Kind::kClock: return "a step of " + name;
    case Request::Kind::kPull: break;
  }
  const wire::TableInfo* info = scheduler_.state()->FindTable(record.request.table);
  if (record.parks && info != nullptr && info->spec.staleness != kUnbounded)
    return "a pull of " + name + " in step " + std::to_string(record.round.value);
  const bool after = record.parks && record.sent && record.round.value > 0;
  return "a pull of " + name + (after ? " after round " + std::to_string(record.round.value - 1) : "");
}

std::string WaitingWords::AwaitedBy(const RequestRecord& record, int64_t now_us) const {
  if (!record.sent) return "earlier requests of this worker are not finished";
  // If it is only ourselves that a shard waits for, something does not get through.
  const bool only_us = record.missing_ranks.size() == 1 && record.missing_ranks[0] == scheduler_.rank().value;
  if (!record.missing_ranks.empty() && !only_us) {
    const std::vector<uint32_t> in_barrier = MissingInBarrier(record);
    return RanksAre(record.missing_ranks) + " missing" +
           (in_barrier.empty() ? "" : "; " + RanksAre(in_barrier) + " in a barrier");
  }
  if (record.when_assigned && links_.ready()) return "nobody has assigned its values yet";
  return NoAnswer(record, now_us);
}

std::string WaitingWords::NoAnswer(const RequestRecord& record, int64_t now_us) const {
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
  if (!scheduler_.Silent(now_us) && scheduler_.said_blocked()) return scheduler + "; " + text;
  return text + (scheduler.empty() ? "" : "; " + scheduler);
}

std::vector<uint32_t> WaitingWords::MissingInBarrier(const RequestRecord& record) const {
  std::vector<uint32_t> there = RanksInBarrier(*scheduler_.state(), scheduler_.said_awaiting());
  std::erase_if(there, [&](uint32_t rank) {
    return std::find(record.missing_ranks.begin(), record.missing_ranks.end(), rank) ==
           record.missing_ranks.end();
  });
  return there;
}

std::string WaitingWords::Who() const { return "rank " + std::to_string(scheduler_.rank().value) + " "; }

std::string WaitingWords::LineOf(const RequestRecord& record, int64_t now_us) const {
  const std::vector<uint32_t> in_barrier = MissingInBarrier(record);
  const std::string what = Who() + "waits for " + WhatOf(record);
  // The classic mistake has its own words: nobody is late, they wait for each other.
  if (!in_barrier.empty() && in_barrier == record.missing_ranks)
    return RanksAre(in_barrier) + " in a barrier, " + what;
  return what + ": " + AwaitedBy(record, now_us);
}

std::string WaitingWords::StartAwaits(bool in_view, int64_t now_us) const {
  if (!in_view || links_.empty()) {
    const std::string awaiting = scheduler_.Awaiting(now_us);
    return awaiting.empty() ? "waiting for the scheduler to let this worker in" : awaiting;
  }
  for (const Links::Place& place : links_.all()) {
    const ShardLink& link = *place.link;
    if (!link.ready()) return "no answer from " + link.Describe() + " yet (" + link.Trouble() + ")";
  }
  return "";
}

}  // namespace cairn::client
