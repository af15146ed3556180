// The decisions of `cairn run`: who is started when, who is restarted, when the job is over, whom
// to stop and with which exit code it all ends. A state machine without processes: the launcher
// (tools/cairn/run.cc) tells it what happened and carries out what it asks for.
//
//   scheduler ready → servers and workers → the workers end → servers and scheduler leave → done
//
//   a worker killed by a signal      started again with its rank; then given up
//   a worker that exits not with 0   the job ends with its exit code
//   a scheduler killed by a signal   started again on the same port
//   a server killed by a signal      started again where others have copies of what it held (replicas);
//                                    then given up, as long as there are other servers; else the job ends
//   a server that ends with 0        has left; another is started if the scheduler wants as many
//   fewer workers are wanted         those with the highest ranks get SIGTERM, and their ranks are given up
//
// How often is a matter of restart_limit.h: workers that fall over again and again leave the cluster its own.
//
// A job over several machines has one launcher on each, with a share of the servers and workers. Node
// 0 has the scheduler; the others wait until it answers. A node whose workers are done stays until its
// servers leave, which they do when the job is over; what goes wrong on one node is told to the
// scheduler, and with it to all.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/supervise/ended_processes.h"
#include "cluster/supervise/restart_limit.h"
#include "cluster/supervise/worker_scale.h"
#include "wire/control.h"

namespace cairn::cluster {

struct NodeName {
  wire::Role role = wire::Role::kWorker;
  uint32_t index = 0;  // server index or worker rank
  auto operator<=>(const NodeName&) const = default;
};
std::string ToString(const NodeName& node);  // "scheduler", "server 0", "worker 1"

// How many servers the scheduler wants in the whole job (0: not said), and which of this launcher's are on
// their way out, the one that has just ended included.
struct ServersSeen {
  uint32_t wanted = 0;
  std::set<uint32_t> leaving;
};

// How a process ended: by a signal, or with a code.
struct ProcessEnd {
  int code = 0;
  int signal = 0;
  bool left_job = false;           // a worker: the scheduler had it as done before its process ended
  std::optional<bool> has_copies;  // a server: whether others have what it held, where the scheduler knows
  std::optional<ServersSeen> servers;  // a server: what the scheduler said when it had ended
  uint64_t uid = 0;                    // a server: as it registers; 0: not known
  bool clean() const { return code == 0 && signal == 0; }
  int exit_code() const { return signal != 0 ? 128 + signal : code; }  // as a shell says it
};
std::string ToString(const ProcessEnd& end);  // "exited with code 3", "was killed by signal 9 (Killed)"

// A worker or server that exits with it asks to be started again: it was declared dead while it was
// paused, and can't go on as what it was. (EX_TEMPFAIL of sysexits.h.)
inline constexpr int kStartAgainCode = 75;

struct SuperviseOptions {
  uint32_t servers = 1;  // on this node, as on every other
  uint32_t workers = 1;
  uint32_t replicas = 1;                 // owners of a partition, until the scheduler has said how many
  RestartLimit max_restarts;             // of this launcher
  int64_t leave_grace_ms = 30'000;       // for servers and scheduler, once the workers have ended
  int64_t late_server_grace_ms = 2'000;  // for servers, once the scheduler has left too
  int64_t give_up_every_ms = 1'000;      // repeated, because the scheduler may be away; kEnded too
  int64_t stop_grace_ms = 5'000;         // between SIGTERM and SIGKILL
  int64_t interrupt_grace_ms = 10'000;   // between SIGINT and SIGTERM: time to save
  int64_t dismiss_grace_ms = 30'000;  // between SIGTERM and SIGKILL for a worker of which there are too many
  uint32_t nodes = 1;
  uint32_t node_rank = 0;
  int64_t join_grace_ms = 600'000;  // node_rank > 0: how long it waits for the scheduler
  // node_rank > 0: a scheduler silent for so long is gone. More than the time that the scheduler gives others
  // (its lost_after), unless it says another one.
  int64_t lost_grace_ms = 65'000;
};

// Why a job was stopped that `cairn stop` has ended, and the exit code then: as after SIGTERM.
inline constexpr std::string_view kStoppedWords = "stopped by `cairn stop`";
inline constexpr int kStoppedCode = 143;

// What the scheduler says of the job.
struct JobSeen {
  int64_t asked_ms = 0;         // the answer is no older than this
  bool answered = false;        // the rest counts only if it is
  bool over = false;            // ended or failed
  std::string failure;          // of a failed one
  bool anybody_joined = false;  // some worker, ever
  std::set<uint32_t> given_up;  // ranks that were neither done nor are awaited any longer
  ServersSeen servers;
  int64_t lost_after_ms = 0;  // for so long the scheduler may be cut off without ending the job; 0: not said
  uint32_t replicas = 0;      // owners of a partition; 0: not said
  bool copied = false;        // every partition has more than one owner in sync, and all are heard
};

struct SuperviseAction {
  enum class Kind {
    kStart,
    kInterrupt,  // SIGINT to its process group
    kTerminate,  // SIGTERM to its process group
    kKill,       // SIGKILL to its process group
    kGiveUp,     // tell the scheduler that this worker's rank does not come back
    kEnded,      // tell the scheduler that the process `ended` has ended (OnToldEnded)
    kAbort,      // tell the scheduler that the job has failed, and why: `text`
    kAsk,        // ask the scheduler now rather than in a while (OnSeen)
    kSay,        // `text`, to the user
    kShowTail,   // its last lines again, at the very end
  };
  Kind kind = Kind::kSay;
  NodeName node;
  std::string text;
  EndedProcess ended;
};

class Supervisor {
 public:
  explicit Supervisor(const SuperviseOptions& options);

  // Each returns what to do now, in order. Times are monotonic milliseconds.
  std::vector<SuperviseAction> Begin(int64_t now_ms);
  // The scheduler listens. Also after a restart. Node 0 only; others learn it by OnSeen.
  std::vector<SuperviseAction> OnSchedulerReady(int64_t now_ms);
  std::vector<SuperviseAction> OnEnd(const NodeName& node, const ProcessEnd& end, int64_t now_ms);
  // A node could not be started at all.
  std::vector<SuperviseAction> OnStartFailed(const NodeName& node, const std::string& why, int64_t now_ms);
  // Ctrl-C or SIGTERM: the first ends all in good order, the second kills.
  // SIGINT reaches the workers as such first, anything else as SIGTERM.
  std::vector<SuperviseAction> OnInterrupt(int signal, int64_t now_ms);
  // The launcher can't go on: everything is stopped.
  std::vector<SuperviseAction> OnTrouble(int exit_code, const std::string& why, int64_t now_ms);
  // An answer of the scheduler's, or that there was none. Needed where nodes > 1, and after kAsk.
  std::vector<SuperviseAction> OnSeen(const JobSeen& seen, int64_t now_ms);
  // `cairn scale --workers`: so many in the whole job.
  std::vector<SuperviseAction> OnWorkersWanted(uint32_t wanted, int64_t now_ms);
  // `cairn stop`: everything is stopped, workers first, with time to save.
  std::vector<SuperviseAction> OnStop(int64_t now_ms);
  std::vector<SuperviseAction> OnTick(int64_t now_ms);
  // The scheduler has answered kEnded; it is repeated until then.
  void OnToldEnded(uint64_t uid) { ended_.OnTold(uid); }
  // The scheduler has said that the job has failed, and why.
  void OnFailure(const std::string& why);
  // The last words of a node that is about to be reported ended.
  void OnReason(const std::string& why);

  bool finished() const { return phase_ == Phase::kDone; }
  int exit_code() const { return exit_code_.value_or(0); }
  // For the last line: what ended the job before its time (empty: nothing did), and some counts.
  std::string cause() const;
  // The cause is the scheduler's: what workers said is a consequence.
  bool job_failed() const { return secondary_ && !failure_seen_.empty(); }
  bool interrupted() const { return interrupts_ > 0; }
  bool stopped() const {
    return exit_code_ == kStoppedCode && cause().find(kStoppedWords) != std::string::npos;
  }
  const WorkerScale& workers() const { return scale_; }
  uint32_t restarts() const { return restarts_.total(); }
  // Of this launcher's workers that ended well: those that the scheduler had as done too, and those that it
  // had to give up. Of a job that no worker ever joined all are done.
  uint32_t workers_done() const { return static_cast<uint32_t>(ended_well_.size()) - workers_not_left(); }
  uint32_t workers_not_left() const;
  uint32_t servers_given_up() const { return static_cast<uint32_t>(given_up_servers_.size()); }
  uint32_t workers_given_up() const { return static_cast<uint32_t>(given_up_.size()); }

 private:
  enum class Phase {
    kStarting,  // the scheduler does not listen yet
    kRunning,
    kLeaving,          // the workers have ended: servers and scheduler leave by themselves
    kStoppingWorkers,  // told to stop, workers first, so that they meet no half-dead cluster
    kStoppingRest,
    kDone,
  };

  void Start(const NodeName& node);
  void Do(SuperviseAction::Kind kind, const NodeName& node) { actions_.push_back({kind, node, {}, 0}); }
  void Say(const std::string& text) { actions_.push_back({SuperviseAction::Kind::kSay, {}, text, 0}); }
  void TellEnded(int64_t now_ms);
  // `what_follows`: for the user, after "starting it again".
  bool TakeRestart(const NodeName& node, const ProcessEnd& end, int64_t now_ms,
                   const std::string& what_follows = "");
  std::string UsedUp() const;  // "3 restarts within 10 min are used up (--max-restarts)"
  void WorkerEnded(const NodeName& node, const ProcessEnd& end, int64_t now_ms);
  void ServerEnded(const NodeName& node, const ProcessEnd& end, int64_t now_ms);
  void SchedulerEnded(const NodeName& node, const ProcessEnd& end, int64_t now_ms);
  // Stops everybody because of `why`. The first cause's exit code stays.
  struct Failure {
    int exit_code = 1;
    std::string cause, consequence;  // "worker 1 exited with code 3", ": the job ends"
    bool secondary = false;          // the scheduler may know the cause better
  };
  void Fail(const Failure& failure, int64_t now_ms);
  void StopStage(Phase phase, int64_t now_ms, SuperviseAction::Kind how = SuperviseAction::Kind::kTerminate);
  void StopLate(int64_t now_ms);  // those who have not ended at the deadline
  void LookForNode0(int64_t now_ms);
  void StartAll();
  bool MayHaveCopies(const ProcessEnd& server, bool leaving) const;
  // False: it was one of those that others have copies of, or that are no longer needed.
  bool LosesTables(const NodeName& node, const ProcessEnd& end, bool leaving, int64_t now_ms);
  // Servers that died since every partition had its copies: "servers 0 and 1 died", if there are several.
  std::string DeathsTogether() const;
  void FollowScale(const JobSeen& seen);
  void DismissedEnded(const NodeName& node, const ProcessEnd& end);
  std::string NameLeaving() const;
  uint32_t CountServers() const;
  uint32_t CountStaying() const;  // those of them that have not been told to go
  void Settle(int64_t now_ms);    // moves on to the next phase when nothing holds it back
  bool Any(wire::Role role) const;
  NodeName Local(wire::Role role, uint32_t i) const;  // the i-th of this node
  bool stopping() const { return phase_ == Phase::kStoppingWorkers || phase_ == Phase::kStoppingRest; }
  std::vector<SuperviseAction> Take();

  SuperviseOptions options_;
  WorkerScale scale_;
  RestartCounts restarts_;
  Phase phase_ = Phase::kStarting;
  std::set<NodeName> alive_;
  std::set<uint32_t> given_up_;  // ranks that the scheduler is told about, again and again
  std::set<uint32_t> given_up_servers_;
  EndedProcesses ended_;
  std::set<uint64_t> left_servers_;  // by uid: those that ended well
  bool scheduler_began_again_ = false;
  std::set<uint32_t> died_servers_;  // since every partition had more than one owner in sync
  uint32_t replicas_ = 1;
  uint32_t servers_wanted_ = 0;     // in the whole job
  std::set<uint32_t> leaving_;      // servers that run here and have been told to go
  int64_t servers_changed_ms_ = 0;  // older answers don't count
  bool over_ = false;               // the scheduler has said so
  std::optional<NodeName> tail_;
  std::set<uint32_t> ended_well_;     // ranks
  std::set<uint32_t> given_up_seen_;  // of all ranks, as the scheduler said last
  int interrupts_ = 0;
  std::string cause_, failure_seen_, aborted_;  // aborted_: what this launcher has told the scheduler
  std::string last_words_;                      // of who is being reported ended
  bool secondary_ = false;                      // cause_ is a consequence of failure_seen_, if that is known
  bool unused_ = false;                         // the workers have ended and none had ever joined
  bool softly_ = false;                         // told with SIGINT so far
  int64_t leaving_ms_ = 0;                      // since when
  int64_t heard_ms_ = 0;                        // of the scheduler; node_rank > 0
  int64_t deadline_ms_ = 0;
  int64_t next_give_up_ms_ = 0;
  bool scheduler_left_ = false;  // after the workers, in good order
  bool stubborn_ = false;        // someone did not leave by itself
  std::optional<int> exit_code_;
  std::vector<SuperviseAction> actions_;
};

}  // namespace cairn::cluster
