#include "scheduler/node/candidate_node.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "scheduler/metastore/candidacy.h"
#include "scheduler/metastore/etcd_election.h"
#include "scheduler/node/etcd_gateway.h"

namespace cairn::scheduler {
namespace {

constexpr int64_t kCallTimeoutUs = 1'500'000;

int64_t MonotonicUs() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since).count();
}

class Candidate final : public CandidateNode {
 public:
  Candidate(EtcdOptions options, std::string address, Candidacy::Listener& listener, LogLine log)
      : options_(std::move(options)),
        log_(std::move(log)),
        kv_(options_.members, [this] { return stop_ && !resigning_; }),
        election_(kv_, {.prefix = options_.prefix,
                        .address = std::move(address),
                        .ttl_s = options_.ttl_s,
                        .call_timeout_us = kCallTimeoutUs}),
        candidacy_(election_,
                   {.ttl_us = options_.ttl_s * 1'000'000,
                    .now_us = MonotonicUs,
                    .stopping = [this] { return stop_.load(); }},
                   listener, log_) {
    thread_ = std::thread([this] { Run(); });
  }

  ~Candidate() override {
    {
      MutexLock lock(mutex_);
      stop_ = true;
    }
    wake_.WakeAll();
    thread_.join();
  }

  void Resign() override { SetStands(false); }
  void Stand() override { SetStands(true); }

 private:
  void SetStands(bool stands) {
    {
      MutexLock lock(mutex_);
      if (stands_ == stands) return;
      stands_ = stands;
      changed_ = true;
    }
    wake_.WakeAll();
  }

  void Run() {
    int64_t pause_us = 0;
    while (Sleep(pause_us)) pause_us = candidacy_.Step(stands_);
    resigning_ = true;
    candidacy_.Resign();
  }

  // False: the end has come. Ends early when it is to resign or to stand.
  bool Sleep(int64_t us) {
    const bool for_ever = us == Candidacy::kNever;
    const auto until = Condition::Clock::now() + std::chrono::microseconds(for_ever ? 0 : us);
    MutexLock lock(mutex_);
    while (!stop_ && !changed_) {
      if (for_ever)
        wake_.Wait(mutex_);
      else if (!wake_.WaitUntil(mutex_, until))
        break;
    }
    changed_ = false;
    return !stop_;
  }

  const EtcdOptions options_;
  const LogLine log_;
  std::atomic<bool> stop_{false};  // changed under mutex_
  std::atomic<bool> resigning_{false};
  std::atomic<bool> stands_{true};  // changed under mutex_
  bool changed_ CAIRN_GUARDED_BY(mutex_) = false;
  // Of the thread.
  EtcdGateway kv_;
  EtcdElection election_;
  Candidacy candidacy_;
  Mutex mutex_;
  Condition wake_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<CandidateNode> CandidateNode::Start(EtcdOptions options, std::string address,
                                                    Candidacy::Listener& listener, LogLine log) {
  return std::make_unique<Candidate>(std::move(options), std::move(address), listener, std::move(log));
}

}  // namespace cairn::scheduler
