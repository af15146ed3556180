// What the launcher makes of the scheduler's answers and of its processes' last words: the progress
// line, the first traceback, the summary.
#include <algorithm>
#include <utility>

#include "job_wishes.h"
#include "launcher.h"
#include "progress.h"

namespace cairn::tool {

using cluster::NodeName;

void Launcher::Say(const std::string& text) {
  own_log_.Write("[cairn] " + text);
  own_log_.Flush();
  screen_.Say("[cairn] " + text);
}

// Its address is known: from now on it is asked, and `cairn status` finds the job.
void Launcher::SchedulerKnown() {
  if (poller_.started()) return;
  poller_.Start(place_.scheduler);
  const Status written = job_file_.Write(variables_, {.scheduler = place_.scheduler,
                                                      .cluster_id = place_.cluster_id,
                                                      .command = OwnCommand(),
                                                      .launcher = true});
  if (!written.ok()) {
    Say("`cairn status` will need the address " + wire::ToString(place_.scheduler) + ": " +
        written.message());
  }
}

// Another launcher's mistake would otherwise be a wait for nodes that never come.
void Launcher::CheckSameJob(const ClusterSummary& summary) {
  const cluster::SuperviseOptions& share = options_.supervise;
  const std::string there = "the scheduler at " + wire::ToString(place_.scheduler);
  std::string wrong;
  if (summary.cluster_id != place_.cluster_id) {
    wrong = there + " has the job '" + summary.cluster_id + "' and not '" + place_.cluster_id +
            "': give the same --job-id, --master-addr and --master-port on every node";
  } else if (summary.expected_servers != share.nodes * share.servers ||
             summary.expected_workers != share.nodes * share.workers) {
    wrong = there + " waits for " + Counted(summary.expected_servers, "server") + " and " +
            Counted(summary.expected_workers, "worker") + ", and here it would be " +
            std::to_string(share.nodes * share.servers) + " and " +
            std::to_string(share.nodes * share.workers) + ": give the same --nnodes, -s and -w on every node";
  }
  if (!wrong.empty()) Perform(supervisor_.OnTrouble(2, wrong, MonotonicMs()));
}

std::set<uint32_t> Launcher::LeavingHere(const ClusterSummary& summary) {
  std::set<uint32_t> leaving;
  for (auto& [name, node] : nodes_) {
    if (name.role != wire::Role::kServer || node.child.pid <= 0) continue;
    ReadOwnWords(node);
    const ClusterSummary::Server* entry = EntryOf(node, summary);
    if (entry != nullptr && entry->leaving) leaving.insert(name.index);
  }
  return leaving;
}

// The numbers of the servers of now become those of the job so far.
void Launcher::Count(ClusterSummary& summary) {
  std::vector<cluster::ServerCounts> servers;
  for (const ClusterSummary::Server& server : summary.each) servers.push_back(server.counts);
  const cluster::JobCounts::Totals totals = counts_.Next(servers, MonotonicMs());
  summary.rounds = totals.rounds;
  summary.pushes = totals.pushes;
  rounds_per_s_ = totals.rounds_per_s;
}

void Launcher::Watch() {
  if (std::optional<StatusPoller::Answer> answer = poller_.Take()) {
    const bool first = !last_answer_.summary;
    cluster::JobSeen seen;
    seen.asked_ms = answer->asked_ms;
    silent_ = !answer->summary.has_value();
    if (answer->summary) {
      Count(*answer->summary);
      const ClusterSummary& summary = *answer->summary;
      seen.answered = true;
      seen.over = summary.phase == "ended" || summary.phase == "failed";
      seen.failure = summary.phase == "failed" ? summary.failure : "";
      seen.anybody_joined = summary.anybody_joined();
      seen.given_up = summary.given_up_ranks;
      seen.servers = {summary.servers_wanted, LeavingHere(summary)};
      seen.lost_after_ms = summary.lost_after_ms;
      seen.replicas = summary.replicas;
      seen.copied = summary.copied_but_for(0);
      TellOfCopies(summary);
      TellOfStandstill(summary);
      if (first && !seen.over && options_.nodes.node_rank > 0) CheckSameJob(summary);
      if (!seen.over) last_answer_ = *answer;
    }
    Perform(supervisor_.OnSeen(seen, MonotonicMs()));
  }
  FollowWishes();
  ShowProgress();
}

void Launcher::FollowWishes() {
  constexpr int64_t kLookEveryMs = 300;
  const int64_t now = MonotonicMs();
  if (now < next_wishes_ms_ || job_file_.path().empty()) return;
  next_wishes_ms_ = now + kLookEveryMs;
  const std::optional<Wishes> wishes = ReadWishes(job_file_.path());
  if (!wishes) return;
  if (wishes->stop) Perform(supervisor_.OnStop(now));
  if (wishes->workers == 0) return;
  Perform(supervisor_.OnWorkersWanted(wishes->workers, now));
  const cluster::WorkerScale& scale = supervisor_.workers();
  if (scale.has_one_to_call()) return;  // not yet: it still runs
  Following following{scale.wanted(), scale.called()};
  if (following != following_ && WriteFollowing(job_file_.path(), following).ok())
    following_ = std::move(following);
}

// Deaths and moves leave partitions with fewer copies than they should have, for a while.
void Launcher::TellOfCopies(const ClusterSummary& summary) {
  if (summary.phase != "running" || summary.slots.total == 0) return;
  const int64_t now = MonotonicMs();
  if (!summary.slots.complete()) {
    complete_answers_ = 0;
    if (copying_since_ms_ != 0) return;
    copying_since_ms_ = now;
    return Say("partitions are being copied: " + std::to_string(summary.slots.in_sync) + " of " +
               std::to_string(summary.slots.total) + " have all their copies (`cairn top` shows more)");
  }
  // Moves come a few at a time: only two answers in a row say that it is over.
  if (copying_since_ms_ == 0 || ++complete_answers_ < 2) return;
  Say("every partition has all its copies again, after " + Seconds(now - copying_since_ms_));
  copying_since_ms_ = 0;
}

// With --min-in-sync a job may wait for a server that nobody starts any more: it was given up, or told to go.
void Launcher::TellOfStandstill(const ClusterSummary& summary) {
  constexpr uint32_t kAnswers = 3;  // who is started again is there by then, and gets its copies by itself
  const bool stands = summary.phase == "running" && summary.slots.blocked > 0 &&
                      (summary.servers < summary.min_in_sync || standstill_answers_ >= kAnswers);
  if (!stands) {
    if (std::exchange(standstill_answers_, 0) >= kAnswers)
      Say("the job goes on: every partition has enough owners in sync again");
    return;
  }
  if (++standstill_answers_ != kAnswers) return;
  const uint32_t given_up = supervisor_.servers_given_up();
  Say("the job stands still: " + std::to_string(summary.slots.blocked) + " of " +
      Counted(summary.slots.total, "partition") + " have fewer owners in sync than --min-in-sync " +
      std::to_string(summary.min_in_sync) + " asks for" +
      (given_up == 0 ? ""
                     : ", and " + Counted(given_up, "server") + (given_up == 1 ? " was" : " were") +
                           " given up (--max-restarts)") +
      ". Start a server by hand, and it goes on (Ctrl-C ends it): cairn server --scheduler " +
      wire::ToString(place_.scheduler));
}

void Launcher::ShowProgress() {
  if (!options_.progress.value_or(true) || supervisor_.finished()) return;
  const int64_t now = MonotonicMs();
  if (now < next_progress_ms_) return;
  const std::string line = ProgressLine({now - started_ms_, silent_, last_answer_, rounds_per_s_});
  if (screen_.live()) {
    next_progress_ms_ = now + 500;
    return screen_.SetProgress(line);
  }
  const bool first = next_progress_ms_ == 0;
  next_progress_ms_ = now + static_cast<int64_t>(options_.progress_every_s * 1000);
  if (!first) Say(line.substr(line.find(' ') + 1));
}

// The line that the scheduler leaves behind: the last report of every server is in it.
void Launcher::ReadFinal(const std::string& line) {
  Result<ClusterSummary> summary = ParseSummary(line);
  if (!summary.ok()) return;
  final_ = std::move(summary).value();
  Count(*final_);
  cluster::JobSeen seen{.asked_ms = MonotonicMs(), .answered = true, .over = true};
  seen.failure = final_->phase == "failed" ? final_->failure : "";
  seen.anybody_joined = final_->anybody_joined();
  seen.given_up = final_->given_up_ranks;
  Perform(supervisor_.OnSeen(seen, MonotonicMs()));
}

// The worker that failed first may not be the first that ended: one is still busy ending, after its
// traceback, when another falls over the consequence.
const Launcher::Node* Launcher::FirstToFail(const Node& told) const {
  constexpr int64_t kTogetherMs = 10'000;  // a traceback from before that was not deadly
  const Node* first = &told;
  if (told.traceback_ms == 0) return first;
  for (const auto& [name, node] : nodes_) {
    if (name.role != wire::Role::kWorker || node.end.clean()) continue;
    const bool near = node.traceback_ms >= told.traceback_ms - kTogetherMs;
    if (near && node.traceback_ms < first->traceback_ms && node.lines->ending().traceback) first = &node;
  }
  return first;
}

void Launcher::ShowLastLines(const NodeName& name) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return;
  const Node* first = FirstToFail(found->second);
  const cluster::OutputLines::Ending ending = first->lines->ending();
  if (ending.lines.empty()) return;
  const std::string who = first->plain_prefix.substr(1, first->plain_prefix.size() - 3);
  if (first != &found->second) first_to_fail_ = who + " failed first: " + ending.lines.back();
  Say((ending.traceback ? "the first traceback, of " : "the last lines of ") + who + ":");
  for (const std::string& line : ending.lines) screen_.Say(first->prefix + line);
}

std::string Launcher::Summary() const {
  const std::string seconds = Seconds(MonotonicMs() - started_ms_);
  const std::string logs = logs_.path().empty() ? "" : "logs in " + logs_.path();
  if (supervisor_.exit_code() != 0) {
    const bool workers_fault = !first_to_fail_.empty() && !supervisor_.job_failed();
    const std::string cause = workers_fault ? first_to_fail_ : supervisor_.cause();
    return (supervisor_.stopped()    ? "stopped after " + seconds + ", by `cairn stop`"
            : cause == "interrupted" ? "interrupted after " + seconds
                                     : "failed after " + seconds + ": " + cause) +
           (logs.empty() ? "" : "; " + logs);
  }
  const uint32_t not_left = supervisor_.workers_not_left();
  std::string line = "finished in " + seconds + ": " + Counted(supervisor_.workers_done(), "worker") +
                     " done, " +
                     (not_left == 0 ? "" : std::to_string(not_left) + " ended without leaving the job, ") +
                     Counted(supervisor_.restarts(), "restart");
  const std::string least = counts_.incomplete() ? ", at least " : ", ";
  if (final_ && final_->rounds > 0) line += least + Counted(final_->rounds, "round");
  if (final_ && final_->rounds == 0 && final_->pushes > 0)
    line += least + std::to_string(final_->pushes) + " pushes";
  return line + (logs.empty() ? "" : ", " + logs);
}

}  // namespace cairn::tool
