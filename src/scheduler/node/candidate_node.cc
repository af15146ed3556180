#include "scheduler/node/candidate_node.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

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
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  void Resign() override { SetStands(false); }
  void Stand() override { SetStands(true); }

 private:
  void SetStands(bool stands) {
    {
      const std::lock_guard lock(mutex_);
      if (stands_ == stands) return;
      stands_ = stands;
      changed_ = true;
    }
    wake_.notify_all();
  }

  void Run() {
    int64_t pause_us = 0;
    while (Sleep(pause_us)) pause_us = candidacy_.Step(stands_);
    resigning_ = true;
    candidacy_.Resign();
  }

  // False: the end has come. Ends early when it is to resign or to stand.
  bool Sleep(int64_t us) {
    std::unique_lock lock(mutex_);
    const auto woken = [this] { return stop_ || changed_; };
    if (us == Candidacy::kNever)
      wake_.wait(lock, woken);
    else
      wake_.wait_for(lock, std::chrono::microseconds(us), woken);
    changed_ = false;
    return !stop_;
  }

  const EtcdOptions options_;
  const LogLine log_;
  std::atomic<bool> stop_{false};  // changed under mutex_
  std::atomic<bool> resigning_{false};
  std::atomic<bool> stands_{true};  // changed under mutex_
  bool changed_ = false;            // guarded by mutex_
  // Of the thread.
  EtcdGateway kv_;
  EtcdElection election_;
  Candidacy candidacy_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<CandidateNode> CandidateNode::Start(EtcdOptions options, std::string address,
                                                    Candidacy::Listener& listener, LogLine log) {
  return std::make_unique<Candidate>(std::move(options), std::move(address), listener, std::move(log));
}

}  // namespace cairn::scheduler
