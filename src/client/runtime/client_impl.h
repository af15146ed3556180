// ClientImpl: the public Client's engine, put together. The callers' threads do the copying and checking
// (table_verbs.h, control_verbs.h) and hand their calls over (hand_over.h) to the loop's side
// (loop_side.h), one thread with the sockets and the state machine; a Pending is where they wait. Any
// thread but the loop's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cairn/client.h"
#include "cairn/status.h"
#include "client/protocol/user_waits.h"
#include "client/runtime/control_verbs.h"
#include "client/runtime/hand_over.h"
#include "client/runtime/loop_side.h"
#include "client/runtime/table_verbs.h"
#include "client/runtime/unacked_bytes.h"
#include "wire/cluster_state.h"

namespace cairn {

class ClientImpl {
 public:
  static Result<std::shared_ptr<ClientImpl>> Connect(ClientOptions options);
  ~ClientImpl();

  TableVerbs& tables() { return tables_; }
  ControlVerbs& control() { return control_; }
  HandOver& hand_over() { return hand_over_; }
  // Done with the job: leaves it and closes.
  Status Finish();
  // Ends every call under way and the thread. Later calls get kCancelled.
  void Close(const Status& why) CAIRN_EXCLUDES(close_mutex_);

  uint32_t rank() const { return loop_.rank(); }
  uint32_t world_size() const { return world_size_; }
  uint32_t server_count() const { return server_count_; }
  const std::string& cluster_id() const { return cluster_id_; }
  uint64_t incarnation() const { return loop_.incarnation(); }
  // Live workers that are in a view, by rank.
  std::vector<wire::WorkerInfo> live_workers() const;

 private:
  explicit ClientImpl(ClientOptions options);
  Status Start();

  const ClientOptions options_;
  const std::shared_ptr<client::UserWaits> waits_ = std::make_shared<client::UserWaits>();
  client::UnackedBytes unacked_;
  LoopSide loop_;
  HandOver hand_over_;
  ControlVerbs control_;
  TableVerbs tables_;
  Mutex close_mutex_;  // one Close at a time

  uint32_t world_size_ = 0, server_count_ = 0;  // constant after Connect
  std::string cluster_id_;
};

}  // namespace cairn
