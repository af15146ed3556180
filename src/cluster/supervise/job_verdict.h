// How the job ended, as far as it is known by now: the exit code, the cause in words, and what the scheduler
// and the servers said of it. The first cause counts; a worker's error may be a consequence of what the
// scheduler knows.
#pragma once

#include <optional>
#include <string>

#include "cluster/supervise/process_end.h"

namespace cairn::cluster {

// Why everything has to be stopped.
struct Failure {
  int exit_code = 1;
  std::string cause = {}, consequence = {};  // "worker 1 exited with code 3", ": the job ends"
  bool secondary = false;                    // the scheduler may know the cause better
  std::optional<NodeName> tail = {};         // whose last lines tell more
};

class JobVerdict {
 public:
  // The scheduler has said that the job has failed, and why. An echo of OnAbort is no news.
  void OnFailure(const std::string& why);
  // This launcher has told the scheduler that the job has failed.
  void OnAbort(const std::string& why) { aborted_ = why; }
  // The last words of a node whose end is about to be judged. Empty: of none.
  void OnLastWords(const std::string& words);
  const std::string& last_words() const { return last_words_; }
  // Takes them for the scheduler's word on the failure, if nothing was heard from the scheduler itself.
  void TakeLastWordsForFailure();

  // Something went wrong that does not end the job, but decides its exit code. A cause before it wins.
  void Note(int exit_code, const std::string& cause);
  // The line for the user. `deaths`: of servers that led to it, or empty.
  std::string Fail(const Failure& failure, const std::string& deaths);
  // What was noted so far no longer counts: the user stops the job.
  void Forget() { exit_code_.reset(); }

  int exit_code() const { return exit_code_.value_or(0); }
  // What ended the job before its time; empty: nothing did.
  std::string cause(const std::string& deaths) const;
  // The cause is the scheduler's: what workers said is a consequence.
  bool job_failed() const { return secondary_ && !failure_seen_.empty(); }
  bool stopped() const;
  const std::optional<NodeName>& tail() const { return tail_; }

 private:
  std::optional<int> exit_code_;
  std::string cause_;
  bool secondary_ = false;  // cause_ is a consequence of failure_seen_, if that is known
  std::string failure_seen_, aborted_, last_words_;
  std::optional<NodeName> tail_;
};

}  // namespace cairn::cluster
