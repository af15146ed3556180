// Kv over etcd's JSON gateway: HTTP/1.1 to one member at a time, over a connection that is kept;
// when a member fails, the next one is asked. One thread; it has none of its own.
//
// A transaction is sent once per call: where it may have reached a member and no answer came, the
// outcome is unknown. Everything else is asked of each member in turn until one answers or the time
// is over.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/metastore/kv.h"
#include "wire/cluster_state.h"

namespace cairn::scheduler {

class EtcdGateway final : public Kv {
 public:
  // The client addresses of etcd's members; at least one. While `give_up` says so (it is asked
  // during a call, every 50 ms) calls end as if etcd did not answer; empty: never.
  explicit EtcdGateway(std::vector<wire::Endpoint> members, std::function<bool()> give_up = {});
  ~EtcdGateway() override;

  KvTxnReply Txn(const KvTxn& txn, int64_t timeout_us) override;
  Result<std::optional<KvEntry>> Range(const std::string& key, int64_t timeout_us) override;
  Result<int64_t> LeaseGrant(int64_t ttl_s, int64_t timeout_us) override;
  Result<int64_t> LeaseKeepAlive(int64_t lease, int64_t timeout_us) override;
  Status LeaseRevoke(int64_t lease, int64_t timeout_us) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn::scheduler
