#include "client/runtime/client_impl.h"

#include <algorithm>
#include <future>
#include <iterator>
#include <random>
#include <utility>

#include "client/partition/table_batches.h"
#include "transport/tcp/sockets.h"

namespace cairn {
namespace {
using client::ClientCore;
using transport::Loop;

constexpr int64_t kBusyTickUs = 20'000;
constexpr int64_t kIdleTickUs = 100'000;

uint64_t RandomNumber() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}
}  // namespace

ClientImpl::ClientImpl(ClientOptions options)
    : options_(std::move(options)),
      log_(options_.log ? options_.log : ToStandardError(std::function<std::string()>([this] {
        return rank() == kNoRank ? std::string("cairn worker") : "cairn worker " + std::to_string(rank());
      }))),
      unacked_(options_.max_unacked_bytes),
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

ClientImpl::~ClientImpl() { Close({Code::kCancelled, "this client is closed"}); }

Result<std::shared_ptr<ClientImpl>> ClientImpl::Connect(ClientOptions options) {
  if (options.scheduler_port == 0) {
    return Status(Code::kInvalidArgument, "the scheduler's port is 0: set scheduler_host and scheduler_port");
  }
  std::shared_ptr<ClientImpl> impl(new ClientImpl(std::move(options)));
  if (Status started = impl->Start(); !started.ok()) return started;
  return impl;
}

Status ClientImpl::Start() {
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
  const Status connected = BlockingCall(
      [this](int64_t deadline_us, ClientCore::Done done) {
        core_->Start(deadline_us, std::move(done), Loop::NowUs());
      },
      options_.connect_timeout_ms);
  if (!connected.ok()) return connected;
  const auto state = Snapshot();
  world_size_ = state->expected_workers;
  server_count_ = static_cast<uint32_t>(state->servers.size());
  cluster_id_ = state->cluster_id;
  return Status::Ok();
}

int64_t ClientImpl::OnTick() {
  core_->OnTick(Loop::NowUs());
  Publish();
  return calls_ > 0 ? kBusyTickUs : kIdleTickUs;
}

// The callers' threads prepare their requests with this state.
void ClientImpl::Publish() {
  auto state = core_->state();
  if (state == nullptr || state == published_) return;
  published_ = state;
  rank_.store(core_->rank().value, std::memory_order_relaxed);
  incarnation_.store(core_->incarnation().value, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  snapshot_ = std::move(state);
}

std::shared_ptr<const wire::ClusterState> ClientImpl::Snapshot() const {
  std::lock_guard lock(mutex_);
  return snapshot_;
}

std::vector<wire::WorkerInfo> ClientImpl::live_workers() const {
  std::vector<wire::WorkerInfo> workers = Snapshot()->workers;
  std::erase_if(workers, [](const auto& worker) { return worker.join_view.value == 0; });
  return workers;
}

int64_t ClientImpl::DeadlineUs(int64_t timeout_ms) const {
  constexpr int64_t kMostMs = int64_t{1} << 50;  // "for ever" must not overflow
  return Loop::NowUs() + std::min(timeout_ms > 0 ? timeout_ms : options_.call_timeout_ms, kMostMs) * 1000;
}

Pending ClientImpl::Ready(Status status) {
  auto state = MakeRecycled<Pending::State>(true);
  state->Complete(std::move(status));
  return Pending(std::move(state));
}

Status ClientImpl::BlockingCall(const std::function<void(int64_t deadline_us, ClientCore::Done done)>& start,
                                int64_t timeout_ms) {
  auto state = std::make_shared<Pending::State>(false);
  const int64_t deadline_us = DeadlineUs(timeout_ms);
  // In a trip it is sent by the wait, behind what was begun before it.
  const auto call = [this, state, deadline_us, start] {
    ++calls_;
    start(deadline_us, [this, state](Status status) {
      --calls_;
      Publish();
      state->Complete(std::move(status));
    });
  };
  const Status posted = Begin(call, *state);
  return posted.ok() ? state->Wait() : posted;
}

Result<uint64_t> ClientImpl::NextRound(const TableHandle& table) {
  const wire::TableInfo& info = table.info;
  if (info.spec.mode != Mode::kSync)
    return {Code::kInvalidArgument, "table \"" + info.spec.name + "\" is asynchronous: it has no rounds"};
  auto round = std::make_shared<uint64_t>(0);
  const Status asked = BlockingCall(
      [this, round, id = info.id](int64_t, ClientCore::Done done) {
        *round = core_->next_round(id).value;
        done(core_->fatal());
      },
      0);
  if (!asked.ok()) return asked;
  return *round;
}

Result<wire::TableInfo> ClientImpl::CreateTable(TableSpec spec) {
  auto info = std::make_shared<wire::TableInfo>();
  const Status created = BlockingCall(
      [this, info, spec = std::move(spec)](int64_t deadline_us, ClientCore::Done done) {
        auto made = [info, done = std::move(done)](Result<wire::TableInfo> result) {
          if (result.ok()) *info = *result;
          done(result.status());
        };
        core_->CreateTable(spec, deadline_us, std::move(made), Loop::NowUs());
      },
      0);
  if (!created.ok()) return created;
  return *info;
}

Result<std::vector<wire::TableInfo>> ClientImpl::CreateTables(std::vector<TableSpec> specs) {
  if (specs.empty()) return std::vector<wire::TableInfo>();
  struct Parts {
    std::vector<std::vector<wire::TableInfo>> made;
    size_t left = 0;
    Status failed;
  };
  auto parts = std::make_shared<Parts>();
  const Status created = BlockingCall(
      [this, parts, cut = client::InMessages(std::move(specs))](int64_t deadline_us, ClientCore::Done done) {
        parts->made.resize(cut.size());
        parts->left = cut.size();
        for (size_t i = 0; i < cut.size(); ++i) {
          auto ended = [parts, i, done](Result<std::vector<wire::TableInfo>> result) {
            if (result.ok()) parts->made[i] = *std::move(result);
            if (!result.ok() && parts->failed.ok()) parts->failed = result.status();
            if (--parts->left == 0) done(parts->failed);
          };
          core_->CreateTables(cut[i], deadline_us, std::move(ended), Loop::NowUs());
        }
      },
      0);
  if (!created.ok()) return created;
  std::vector<wire::TableInfo> all;
  for (auto& made : parts->made) std::move(made.begin(), made.end(), std::back_inserter(all));
  return all;
}

Status ClientImpl::DropTable(const std::string& name) {
  return BlockingCall(
      [this, name](int64_t deadline_us, ClientCore::Done done) {
        core_->DropTable(name, deadline_us, std::move(done), Loop::NowUs());
      },
      0);
}

Pending ClientImpl::BeginBarrier() {
  waits_->NoteCaller();
  auto state = std::make_shared<Pending::State>(true);
  const Status posted = Begin(
      [this, state, deadline_us = DeadlineUs(0)] {
        ++calls_;
        auto done = [this, state](Status status) {
          --calls_;
          Publish();
          state->Complete(std::move(status));
        };
        core_->Barrier(deadline_us, std::move(done), Loop::NowUs());
      },
      *state);
  return posted.ok() ? Pending(std::move(state)) : Ready(posted);
}

Status ClientImpl::Finish() {
  const Status left = BlockingCall(
      [this](int64_t deadline_us, ClientCore::Done done) {
        core_->Leave(deadline_us, std::move(done), Loop::NowUs());
      },
      0);
  if (left.ok()) Close({Code::kCancelled, "this worker has finished: no call may follow Finish"});
  return left;
}

void ClientImpl::Close(const Status& why) {
  std::lock_guard one_at_a_time(close_mutex_);
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    closed_why_ = why;
    for (const TripOfThread& open : trips_) open.trip->Send();  // so that its calls end
  }
  unacked_.Close();
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

}  // namespace cairn
