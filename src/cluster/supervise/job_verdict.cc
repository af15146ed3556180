#include "cluster/supervise/job_verdict.h"

#include <string_view>

#include "cluster/supervise/supervise_options.h"

namespace cairn::cluster {
namespace {

// "cairn: the job has failed: server 1 is lost" → "server 1 is lost": whoever says it again says the rest.
std::string BareReason(std::string_view why) {
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view headline : {"cairn: ", "the job has failed: "}) {
      if (!why.starts_with(headline) || why.size() == headline.size()) continue;
      why.remove_prefix(headline.size());
      found = true;
    }
  }
  return std::string(why);
}

}  // namespace

void JobVerdict::OnFailure(const std::string& why) {
  const std::string bare = BareReason(why);
  if (!bare.empty() && bare != aborted_) failure_seen_ = bare;
}

void JobVerdict::OnLastWords(const std::string& words) { last_words_ = BareReason(words); }

void JobVerdict::TakeLastWordsForFailure() {
  if (failure_seen_.empty()) failure_seen_ = last_words_;
}

void JobVerdict::Note(int exit_code, const std::string& cause) {
  if (exit_code_) return;
  exit_code_ = exit_code;
  cause_ = cause;
}

std::string JobVerdict::Fail(const Failure& failure, const std::string& deaths) {
  if (failure.tail) tail_ = failure.tail;
  if (!exit_code_) {
    const bool stopped = failure.secondary && failure_seen_.find(kStoppedWords) != std::string::npos;
    exit_code_ = stopped ? kStoppedCode : failure.exit_code;
    cause_ = failure.cause;
    secondary_ = failure.secondary;
  }
  return (failure.secondary && !failure_seen_.empty()
              ? "the job has failed: " + (deaths.empty() ? "" : deaths + ": ") + failure_seen_
              : failure.cause) +
         failure.consequence;
}

std::string JobVerdict::cause(const std::string& deaths) const {
  if (!job_failed()) return cause_;
  return deaths.empty() ? failure_seen_ : deaths + ": " + failure_seen_;
}

bool JobVerdict::stopped() const {
  // Servers that died have no part in the words that matter here.
  return exit_code_ == kStoppedCode && cause("").find(kStoppedWords) != std::string::npos;
}

}  // namespace cairn::cluster
