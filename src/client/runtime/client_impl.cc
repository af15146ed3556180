#include "client/runtime/client_impl.h"

#include <utility>

namespace cairn {

ClientImpl::ClientImpl(ClientOptions options)
    : options_(std::move(options)),
      unacked_(options_.max_unacked_bytes),
      loop_(options_, waits_),
      hand_over_(loop_.turn(), waits_),
      control_(options_, loop_, hand_over_, *waits_),
      tables_(options_, loop_, hand_over_, *waits_, unacked_) {}

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
  loop_.Start();
  if (Status connected = control_.Start(); !connected.ok()) return connected;
  const auto state = loop_.Snapshot();
  world_size_ = state->expected_workers;
  server_count_ = static_cast<uint32_t>(state->servers.size());
  cluster_id_ = state->cluster_id;
  return Status::Ok();
}

std::vector<wire::WorkerInfo> ClientImpl::live_workers() const {
  std::vector<wire::WorkerInfo> workers = loop_.Snapshot()->workers;
  std::erase_if(workers, [](const auto& worker) { return worker.join_view.value == 0; });
  return workers;
}

Status ClientImpl::Finish() {
  Status left = control_.Leave();
  if (left.ok()) Close({Code::kCancelled, "this worker has finished: no call may follow Finish"});
  return left;
}

void ClientImpl::Close(const Status& why) {
  MutexLock one_at_a_time(close_mutex_);
  if (!hand_over_.Close(why)) return;
  unacked_.Close();
  loop_.Stop();
}

}  // namespace cairn
