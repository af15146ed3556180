#include "scheduler/node/candidate_node.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "scheduler/metastore/etcd_election.h"
#include "scheduler/node/etcd_gateway.h"

namespace cairn::scheduler {
namespace {
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kCampaignEvery{300};
constexpr milliseconds kTryAgainAfter{200};
constexpr auto kComplainEvery = std::chrono::seconds(10);
constexpr int64_t kCallTimeoutUs = 1'500'000;

class Candidate final : public CandidateNode {
 public:
  Candidate(EtcdOptions options, std::string address, Events events, LogLine log)
      : options_(std::move(options)),
        events_(std::move(events)),
        log_(std::move(log)),
        ttl_(std::chrono::seconds(options_.ttl_s)),
        kv_(options_.members, [this] { return stop_ && !resigning_; }),
        election_(kv_, {.prefix = options_.prefix,
                        .address = std::move(address),
                        .ttl_s = options_.ttl_s,
                        .call_timeout_us = kCallTimeoutUs}) {
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
    milliseconds pause{0};
    while (Sleep(pause)) pause = !stands_ ? StandBack() : leads_ ? KeepAlive() : Campaign();
    resigning_ = true;
    election_.Resign();  // so that the others need not wait for the lease to end
  }

  // False: the end has come. Ends early when it is to resign or to stand.
  bool Sleep(milliseconds time) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, time, [this] { return stop_ || changed_; });
    changed_ = false;
    return !stop_;
  }

  // All three give the time until the next try.
  milliseconds StandBack() {
    if (std::exchange(leads_, false)) election_.Resign();
    away_ = false;
    return kCampaignEvery;
  }

  milliseconds Campaign() {
    const Clock::time_point asked = Clock::now();
    const Result<EtcdElection::Standing> standing = election_.Campaign();
    if (!standing.ok()) {
      Complain(standing.status());
      return kTryAgainAfter;
    }
    complained_at_ = {};
    if (standing->revision == 0) {
      events_.on_standby(standing->leader);
      return kCampaignEvery;
    }
    leads_ = true;
    heard_ = asked;
    events_.on_won(standing->revision);
    return milliseconds(0);
  }

  milliseconds KeepAlive() {
    const Clock::time_point asked = Clock::now();
    const Result<bool> leads = election_.KeepAlive();
    if (leads.ok() && !*leads) {
      events_.on_lost({Code::kRetired,
                       "this scheduler no longer leads: etcd did not hear it in time, and its lease ended; "
                       "start it again, it will be a standby"});
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_.load(); });
      return milliseconds(0);
    }
    if (leads.ok()) {
      heard_ = asked;
      complained_at_ = {};
      if (std::exchange(away_, false)) events_.on_etcd(true);
      return std::chrono::duration_cast<milliseconds>(ttl_) / 3;
    }
    if (stop_) return milliseconds(0);
    if (!away_ && Clock::now() - heard_ >= ttl_) {
      away_ = true;
      events_.on_etcd(false);
    }
    Complain(leads.status());
    return kTryAgainAfter;
  }

  void Complain(const Status& error) {
    const Clock::time_point now = Clock::now();
    if (stop_ || (complained_at_ != Clock::time_point{} && now - complained_at_ < kComplainEvery)) return;
    complained_at_ = now;
    log_(error.message());
  }

  const EtcdOptions options_;
  const Events events_;
  const LogLine log_;
  const Clock::duration ttl_;
  std::atomic<bool> stop_{false};  // changed under mutex_
  std::atomic<bool> resigning_{false};
  std::atomic<bool> stands_{true};  // changed under mutex_
  bool changed_ = false;            // guarded by mutex_
  // Of the thread.
  EtcdGateway kv_;
  EtcdElection election_;
  bool leads_ = false, away_ = false;
  Clock::time_point heard_{};  // when the last question that etcd has answered was asked
  Clock::time_point complained_at_{};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<CandidateNode> CandidateNode::Start(EtcdOptions options, std::string address, Events events,
                                                    LogLine log) {
  return std::make_unique<Candidate>(std::move(options), std::move(address), std::move(events),
                                     std::move(log));
}

}  // namespace cairn::scheduler
