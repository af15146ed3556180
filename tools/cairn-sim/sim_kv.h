// etcd in the simulator: keys and leases on virtual time that all schedulers share (SimEtcd), and
// each scheduler's client of it (SimKv), whose calls take time, get lost, are answered by nobody, or
// come in after their caller has given up. While a call is under way the world goes on around the
// process that made it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/random.h"
#include "scheduler/metastore/kv.h"
#include "scheduler/metastore/memory_kv.h"
#include "world.h"

namespace cairn::sim {

class SimEtcd {
 public:
  using OnDurable = std::function<void(const std::string& value)>;
  SimEtcd(World& world, std::string record_key, OnDurable on_durable);

  // On behalf of a process: only the one that has made the leader key may change the record.
  scheduler::KvTxnReply Apply(const scheduler::KvTxn& txn, int process);
  std::optional<scheduler::KvEntry> Get(const std::string& key);
  int64_t Grant(int64_t ttl_s);
  int64_t KeepAlive(int64_t lease);  // the seconds it has now
  void Revoke(int64_t lease);
  // The process does not reach it until then.
  void CutOff(int process, int64_t until_us) { cut_until_us_[process] = until_us; }
  bool IsCutOff(int process);
  // Every lease ends now: etcd's clock was wrong, or its members were away.
  void EndLeases();

 private:
  void Expire();
  World& world_;
  const std::string record_key_;
  const OnDurable on_durable_;
  scheduler::MemoryEtcd etcd_;
  std::map<int64_t, int64_t> ends_us_;  // of each lease
  std::map<int, int64_t> cut_until_us_;
  std::map<int64_t, int> leaders_;  // revision that made a leader key → process
};

class SimKv final : public scheduler::Kv {
 public:
  SimKv(World& world, SimEtcd& etcd, int process, uint64_t seed);

  scheduler::KvTxnReply Txn(const scheduler::KvTxn& txn, int64_t timeout_us) override;
  Result<std::optional<scheduler::KvEntry>> Range(const std::string& key, int64_t timeout_us) override;
  Result<int64_t> LeaseGrant(int64_t ttl_s, int64_t timeout_us) override;
  Result<int64_t> LeaseKeepAlive(int64_t lease, int64_t timeout_us) override;
  Status LeaseRevoke(int64_t lease, int64_t timeout_us) override;

  // The process waits; a dead one does not come back, so its time is over at once.
  void Pause(int64_t us);
  int64_t now_us() const;
  // Calls that etcd has not answered.
  uint64_t unanswered() const { return unanswered_; }

 private:
  enum class Fate { kFine, kRequestLost, kAnswerLost, kLate };
  Fate Choose();
  // What a call does, before its answer or its time-out. False: it is not known.
  bool Call(int64_t timeout_us, const std::function<void()>& act);
  bool MakeCall(int64_t timeout_us, const std::function<void()>& act);

  World& world_;
  SimEtcd& etcd_;
  const int process_;
  Random random_;
  uint64_t unanswered_ = 0;
};

}  // namespace cairn::sim
