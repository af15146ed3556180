#include "client/runtime/loop_side.h"

#include <functional>
#include <future>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "transport/tcp/sockets.h"

namespace cairn {
namespace {
using client::ClientCore;
using transport::Loop;

constexpr int64_t kBusyTickUs = 20'000;
constexpr int64_t kIdleTickUs = 100'000;
}  // namespace

LoopSide::LoopSide(const ClientOptions& options, std::shared_ptr<client::UserWaits> waits)
    : options_(options),
      waits_(std::move(waits)),
      log_(options_.log ? options_.log : ToStandardError(std::function<std::string()>([this] {
        return rank() == kNoRank ? std::string("cairn worker") : "cairn worker " + std::to_string(rank());
      }))),
      loop_("cairn-worker"),
      network_(loop_, pool_,
               {.on_connected =
                    [this](ConnId conn) {
                      core_->OnConnected(conn, Loop::NowUs());
                      Publish();
                    },
                .on_message =
                    [this](ConnId conn, wire::InFrame& frame) {
                      core_->OnMessage(conn, frame, Loop::NowUs());
                      Publish();
                    },
                .on_disconnect =
                    [this](ConnId conn) {
                      core_->OnDisconnect(conn, Loop::NowUs());
                      Publish();
                    }},
               {.most_answer =
                    [this](ConnId conn, const wire::FrameHeader& header) {
                      return core_->MostBodyBytes(conn, header);
                    },
                .close_drops_queued = true,
                .log = log_}) {}

void LoopSide::Start() {
  CAIRN_CHECK(core_ == nullptr);
  client::ClientCoreOptions core;
  core.scheduler = {options_.scheduler_host, options_.scheduler_port};
  core.schedulers = {core.scheduler};
  for (const ClientOptions::Address& more : options_.more_schedulers)
    core.schedulers.push_back({more.host, more.port});
  // Only shown to the user: nobody connects to a worker.
  const Result<std::string> own = transport::LocalAddressTowards(core.scheduler);
  core.host = own.ok() ? *own : "unknown";
  core.cluster_id = options_.cluster_id;
  core.wanted_rank = options_.rank;
  core.uid = RandomNumber();
  core.seed = RandomNumber();
  core.max_unacked_bytes = options_.max_unacked_bytes;
  core.program_waits = [waits = waits_](int64_t now_us) { return waits->waits(now_us); };
  core.unknown_host = [this] { return network_.unknown_host(); };
  core_ = ClientCore::Make(core, network_, pool_, log_, Loop::NowUs());
  loop_.SetTick([this] { return OnTick(); });
  loop_.Start();
}

void LoopSide::Stop() {
  if (core_ == nullptr) return;  // never started
  std::promise<void> cancelled;
  loop_.turn()->Add([this, &cancelled] {
    core_->Cancel(Loop::NowUs());
    network_.CloseAll();
    cancelled.set_value();
  });
  loop_.turn()->Help();
  cancelled.get_future().wait();
  loop_.Stop();
}

int64_t LoopSide::OnTick() {
  core_->OnTick(Loop::NowUs());
  Publish();
  return calls_ > 0 ? kBusyTickUs : kIdleTickUs;
}

void LoopSide::Publish() {
  auto state = core_->state();
  if (state == nullptr || state == published_) return;
  published_ = state;
  rank_.store(core_->rank().value, std::memory_order_relaxed);
  incarnation_.store(core_->incarnation().value, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  snapshot_ = std::move(state);
}

std::shared_ptr<const wire::ClusterState> LoopSide::Snapshot() const {
  MutexLock lock(mutex_);
  return snapshot_;
}

void LoopSide::CallEnded() {
  CAIRN_CHECK(calls_ > 0);
  --calls_;
  Publish();
}

void LoopSide::Disown(std::span<const std::weak_ptr<wire::Frame>> frames) {
  if (frames.empty() || network_.queued_bytes() == 0) return;
  for (const auto& weak : frames) {
    if (const auto frame = weak.lock()) network_.Disown(frame.get());
  }
}

}  // namespace cairn
