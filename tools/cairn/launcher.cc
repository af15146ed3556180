#include "launcher.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <optional>
#include <utility>

#include "commands.h"
#include "job_summary.h"
#include "scheduler_word.h"

namespace cairn::tool {

using cluster::NodeName;
using wire::Role;

Launcher::Launcher(LaunchOptions options, cluster::Variables variables)
    : options_(std::move(options)),
      variables_(std::move(variables)),
      started_ms_(MonotonicMs()),
      supervisor_(options_.supervise),
      output_(options_, variables_),
      setup_(options_, variables_, place_),
      nodes_(output_),
      news_(place_),
      progress_(options_, output_) {}

int64_t Launcher::elapsed_ms() const { return MonotonicMs() - started_ms_; }

int Launcher::Run() {
  if (Status status = Prepare(); !status.ok()) {
    Complain("run: " + status.message());
    constexpr int kNoProgram = 127;  // as a shell says it
    return status.code() == Code::kNotFound ? kNoProgram : status.code() == Code::kInvalidArgument ? 2 : 1;
  }
  if (options_.nodes.node_rank > 0) {
    output_.Say("waiting for node 0 at " + wire::ToString(place_.scheduler));
    SchedulerKnown();
  }
  Perform(supervisor_.Begin(MonotonicMs()));
  while (!supervisor_.finished()) PollOnce();
  nodes_.FlushLines();
  FlushOutput();
  output_.screen().SetProgress("");
  output_.Say(SummaryLine(supervisor_, {.elapsed_ms = elapsed_ms(),
                                        .first_to_fail = first_to_fail_,
                                        .counts = watch_.CountsText(),
                                        .log_folder = output_.log_folder()}));
  return supervisor_.exit_code();
}

Status Launcher::Prepare() {
  if (Status status = setup_.FindPrograms(); !status.ok()) return status;
  Result<MeetingPlace> place = FindMeetingPlace(options_.nodes);
  if (!place.ok()) return place.status();
  place_ = std::move(place).value();
  if (Status status = folder_.Make(); !status.ok()) return status;
  if (Status status = output_.OpenLogs(options_, variables_); !status.ok()) return status;
  if (Status status = signals_.Open(); !status.ok()) return status;
  const std::string mark = RandomLetters(16);
  nodes_.StartGuard(setup_.self(), folder_.path(), mark);
  setup_.SetFolder(folder_.path(), mark);
  if (const std::string words = setup_.DivideCores(); !words.empty()) output_.Say(words);
  return Status::Ok();
}

void Launcher::Perform(std::vector<cluster::SuperviseAction> actions) {
  // What an action leads to comes after the actions that were asked for before it.
  const bool running = !pending_.empty();
  pending_.insert(pending_.end(), actions.begin(), actions.end());
  if (running) return;
  while (!pending_.empty()) {
    PerformOne(pending_.front());
    pending_.pop_front();
  }
}

void Launcher::PerformOne(const cluster::SuperviseAction& action) {
  using Kind = cluster::SuperviseAction::Kind;
  const auto signal_node = [&](int signal) {
    if (NodeProcess* node = nodes_.Find(action.node)) node->Signal(signal);
  };
  switch (action.kind) {
    case Kind::kStart: return StartProcess(action.node);
    case Kind::kInterrupt: return signal_node(SIGINT);
    // A server would move its partitions away first, at SIGTERM.
    case Kind::kTerminate: return signal_node(action.node.role == Role::kServer ? SIGINT : SIGTERM);
    case Kind::kKill: return signal_node(SIGKILL);
    case Kind::kSay: return output_.Say(action.text);
    case Kind::kShowTail: return ShowLastLines(action.node);
    case Kind::kAsk: return watch_.Hurry();
    case Kind::kGiveUp:
    case Kind::kAbort: (void)TellOf(action, place_.scheduler); return;
    case Kind::kEnded:
      if (TellOf(action, place_.scheduler)) supervisor_.OnToldEnded(action.ended.uid);
  }
}

void Launcher::StartProcess(const NodeName& name) {
  NodeProcess& node = nodes_.Of(name);
  const Status started =
      node.Start({.command = setup_.CommandOf(name, node.last_port()),
                  .environment = setup_.EnvironmentFor(name, supervisor_.workers().scale())});
  if (!started.ok()) Perform(supervisor_.OnStartFailed(name, started.message(), MonotonicMs()));
}

void Launcher::PollOnce() {
  constexpr int kTickMs = 100;
  const NodeProcesses::Waited waited = nodes_.ReadOutput(signals_.fd(), kTickMs);
  if (waited.scheduler) ReadSchedulersWords();
  if (waited.other) {
    while (const std::optional<int> signal = signals_.Next())
      Perform(supervisor_.OnInterrupt(*signal, MonotonicMs()));
  }
  FlushOutput();
  Reap();
  Watch();
  Perform(supervisor_.OnTick(MonotonicMs()));
}

void Launcher::ReadSchedulersWords() {
  for (const std::string& line : nodes_.scheduler()->ReadWords()) {
    const int port = atoi(line.c_str());
    if (line.starts_with("{")) {
      if (const std::optional<cluster::JobSeen> seen = watch_.TakeFinal(line))
        Perform(supervisor_.OnSeen(*seen, MonotonicMs()));
    } else if (port > 0 && port <= 65535) {
      place_.scheduler.port = static_cast<uint16_t>(port);
      SchedulerKnown();
      Perform(supervisor_.OnSchedulerReady(MonotonicMs()));
    }
  }
}

// Its address is known: from now on it is asked, and `cairn status` finds the job.
void Launcher::SchedulerKnown() {
  if (watch_.started()) return;
  watch_.Start(place_.scheduler);
  const Status written = job_file_.Write(variables_, {.scheduler = place_.scheduler,
                                                      .cluster_id = place_.cluster_id,
                                                      .command = OwnCommand(),
                                                      .launcher = true});
  if (!written.ok()) {
    output_.Say("`cairn status` will need the address " + wire::ToString(place_.scheduler) + ": " +
                written.message());
  }
}

void Launcher::Reap() {
  const std::vector<NodeName> ended = nodes_.TakeEnded();
  FlushOutput();
  for (const NodeName& name : ended) {
    if (name.role == Role::kScheduler) ReadSchedulersWords();  // its last ones, before its end is judged
    Judge(name);
  }
}

void Launcher::Judge(const NodeName& name) {
  NodeProcess& node = *nodes_.Find(name);
  const JudgedEnd judged = JudgeEnd(node, nodes_, place_.scheduler, watch_.last());
  supervisor_.OnFailure(judged.failure);
  const std::vector<std::string> words = node.ending().lines;
  if (name.role != Role::kWorker && judged.end.code != 0 && !words.empty())
    supervisor_.OnReason(words.back());
  Perform(supervisor_.OnEnd(name, judged.end, MonotonicMs()));
}

void Launcher::Watch() {
  if (std::optional<JobWatch::News> news = watch_.Take()) {
    if (news->summary) {
      const ClusterSummary& summary = *news->summary;
      news->seen.servers.leaving = nodes_.LeavingHere(summary);
      for (const std::string& text : news_.Next(summary, supervisor_.servers().given_up(), MonotonicMs()))
        output_.Say(text);
      if (news->first && !news->seen.over && options_.nodes.node_rank > 0) {
        const std::string wrong = WhyAnotherJob(summary, options_.supervise, place_);
        if (!wrong.empty()) Perform(supervisor_.OnTrouble(2, wrong, MonotonicMs()));
      }
    }
    Perform(supervisor_.OnSeen(news->seen, MonotonicMs()));
  }
  FollowWishes();
  const int64_t now = MonotonicMs();
  if (!supervisor_.finished() && progress_.IsDue(now)) progress_.Show(watch_.View(now - started_ms_), now);
}

void Launcher::FollowWishes() {
  const int64_t now = MonotonicMs();
  const std::optional<Wishes> wishes = wishes_.Look(job_file_.path(), now);
  if (!wishes) return;
  if (wishes->stop) Perform(supervisor_.OnStop(now));
  if (wishes->workers == 0) return;
  Perform(supervisor_.OnWorkersWanted(wishes->workers, now));
  wishes_.Answer(job_file_.path(), supervisor_.workers().scale());
}

void Launcher::FlushOutput() {
  const int error = output_.Flush();
  if (error == 0) return;
  if (error == EPIPE) {
    // Nobody reads any more (`cairn run … | head`): the job has no purpose.
    constexpr int kBrokenPipe = 128 + SIGPIPE;
    return Perform(supervisor_.OnTrouble(kBrokenPipe, "nobody reads the output any more", MonotonicMs()));
  }
  output_.Say(std::string("standard output can't be written to (") + strerror(error) +
              "): the job goes on without it" +
              (output_.log_folder().empty() ? "" : ", with logs in " + output_.log_folder()));
}

void Launcher::ShowLastLines(const NodeName& name) {
  const NodeProcess* told = nodes_.Find(name);
  if (told == nullptr) return;
  const NodeProcess* before = nodes_.FailedBefore(name);
  const NodeProcess& first = before != nullptr ? *before : *told;
  const cluster::OutputLines::Ending ending = first.ending();
  if (ending.lines.empty()) return;
  const std::string who = ToString(first.name());
  if (before != nullptr) first_to_fail_ = who + " failed first: " + ending.lines.back();
  output_.Say((ending.traceback ? "the first traceback, of " : "the last lines of ") + who + ":");
  for (const std::string& line : ending.lines) output_.Repeat(first.prefix(), line);
}

}  // namespace cairn::tool
