// cairn top: the status, live.
#include <signal.h>

#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>

#include "commands.h"
#include "job_choice.h"
#include "live_screen.h"
#include "progress.h"
#include "status_poller.h"
#include "status_text.h"

namespace cairn::tool {
namespace {

struct TopFlags {
  std::optional<std::string> scheduler;
  double interval_s = 1;
  bool once = false;
};

constexpr int64_t kTopAnswerMs = 1'000;
constexpr int64_t kGoneMs = 60'000;  // a scheduler that is started again is back long before

std::string TimeOfDay() {
  const time_t now = time(nullptr);
  tm parts{};
  char text[16];
  localtime_r(&now, &parts);
  return strftime(text, sizeof text, "%H:%M:%S", &parts) > 0 ? text : "";
}

int ShowTop(const TopFlags& flags) {
  Result<wire::Endpoint> scheduler = ChooseScheduler(flags.scheduler);
  if (!scheduler.ok()) return Complain("top: " + scheduler.status().message());
  Result<std::string> json = AskStatus(*scheduler, 5 * kTopAnswerMs);
  if (!json.ok()) return Complain("top: " + json.status().message());
  if (flags.once) {
    std::fputs(StatusText(*json).c_str(), stdout);
    return 0;
  }
  LiveScreen screen;
  int64_t heard_ms = MonotonicMs();
  std::string newest = *json;
  while (true) {
    std::string head = TimeOfDay() + "  scheduler " + wire::ToString(*scheduler);
    const int64_t silent_ms = MonotonicMs() - heard_ms;
    if (!json.ok()) head += "  DOES NOT ANSWER for " + Seconds(silent_ms) + ": this is what it said last";
    if (screen.terminal()) head += "  (q: end)";
    if (!screen.Show(head + "\n" + StatusText(newest))) return 1;
    const Result<ClusterSummary> summary = ParseSummary(newest);
    if (json.ok() && summary.ok() && (summary->phase == "ended" || summary->phase == "failed")) return 0;
    if (silent_ms >= kGoneMs) break;
    if (!screen.Wait(static_cast<int64_t>(flags.interval_s * 1000)))
      return screen.signal() > 0 && screen.signal() != SIGINT ? 128 + screen.signal() : 0;
    json = AskStatus(*scheduler, kTopAnswerMs);
    if (json.ok()) {
      newest = *json;
      heard_ms = MonotonicMs();
    } else if (Result<wire::Endpoint> other = ChooseScheduler(flags.scheduler); other.ok()) {
      scheduler = std::move(other);  // of several, another one may lead now
    }
  }
  return Complain("top: the scheduler at " + wire::ToString(*scheduler) + " has not answered for " +
                  Seconds(kGoneMs) + ": the job is over, or its scheduler has died");
}

}  // namespace

void AddTop(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("top", "Shows the status live: nodes, owners, moves, rates");
  command->footer(
      "On a terminal the screen is redrawn every second; q or Ctrl-C ends it. Elsewhere block follows\n"
      "block. It ends by itself when the job does.\n"
      "  cairn top\n"
      "  cairn top 10.0.0.1:9000 --interval 5");
  auto flags = std::make_shared<TopFlags>();
  command->add_option("scheduler", flags->scheduler, kSchedulerHelp);
  command->add_option("--interval", flags->interval_s, "seconds between two looks (1)")
      ->type_name("SECONDS")
      ->check(Within(0.1, 3600.0));
  command->add_flag("--once", flags->once, "one block, and no more");
  command->callback([flags, &exit_code] { exit_code = ShowTop(*flags); });
}

}  // namespace cairn::tool
