// etcd in memory, for tests and simulation: the keys and leases that all clients share
// (MemoryEtcd), and a client of it whose calls can be made to fail in every way that a network
// allows (MemoryKv). Leases end when the test says so. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/metastore/kv.h"

namespace cairn::scheduler {

class MemoryEtcd {
 public:
  KvTxnReply Apply(const KvTxn& txn) {
    for (const KvCompare& compare : txn.compares) {
      const std::optional<KvEntry> entry = Get(compare.key);
      const KvEntry found = entry.value_or(KvEntry{});
      const bool created = compare.field == KvCompare::Field::kCreateRevision;
      if ((created ? found.create_revision : found.mod_revision) != compare.revision)
        return {KvOutcome::kCompareFailed, 0, {}};
    }
    for (const KvPut& put : txn.puts) {
      if (put.lease != 0 && !leases_.contains(put.lease))
        return {KvOutcome::kRefused, 0, Status(Code::kNotFound, "the lease has ended")};
    }
    ++revision_;
    for (const KvPut& put : txn.puts) {
      KvEntry& entry = keys_[put.key];
      if (entry.create_revision == 0) entry.create_revision = revision_;
      entry.mod_revision = revision_;
      entry.value = put.value;
      entry.lease = put.lease;
    }
    for (const std::string& key : txn.deletes) keys_.erase(key);
    return {KvOutcome::kSucceeded, revision_, {}};
  }
  std::optional<KvEntry> Get(const std::string& key) const {
    const auto found = keys_.find(key);
    return found == keys_.end() ? std::nullopt : std::optional(found->second);
  }
  int64_t Grant(int64_t ttl_s) {
    leases_[++last_lease_] = ttl_s;
    return last_lease_;
  }
  int64_t TtlOf(int64_t lease) const {
    const auto found = leases_.find(lease);
    return found == leases_.end() ? 0 : found->second;
  }
  // Revoked or run out.
  void EndLease(int64_t lease) {
    if (leases_.erase(lease) == 0) return;
    ++revision_;
    std::erase_if(keys_, [&](const auto& entry) { return entry.second.lease == lease; });
  }
  std::vector<int64_t> Leases() const {
    std::vector<int64_t> all;
    for (const auto& [lease, ttl_s] : leases_) all.push_back(lease);
    return all;
  }
  int64_t revision() const { return revision_; }

 private:
  int64_t revision_ = 1, last_lease_ = 1000;
  std::map<std::string, KvEntry> keys_;
  std::map<int64_t, int64_t> leases_;  // → seconds
};

class MemoryKv final : public Kv {
 public:
  // What becomes of one call.
  enum class Fate {
    kFine,
    kRequestLost,  // it never reached etcd; the caller can't know
    kAnswerLost,   // it was carried out; the caller can't know
    kLate,         // the caller gives up; it is carried out later, by DeliverLate
  };
  // Asked before every call; "txn", "range", "grant", "keepalive" or "revoke".
  using Chooser = std::function<Fate(const std::string& call)>;

  explicit MemoryKv(MemoryEtcd& etcd, Chooser choose = {}) : etcd_(etcd), choose_(std::move(choose)) {}

  KvTxnReply Txn(const KvTxn& txn, int64_t) override {
    const Fate fate = Choose("txn");
    if (fate == Fate::kFine) return etcd_.Apply(txn);
    if (fate == Fate::kAnswerLost) (void)etcd_.Apply(txn);
    if (fate == Fate::kLate) late_.push_back(txn);
    return {KvOutcome::kUnknown, 0, Lost()};
  }
  Result<std::optional<KvEntry>> Range(const std::string& key, int64_t) override {
    if (Choose("range") != Fate::kFine) return Lost();
    return etcd_.Get(key);
  }
  Result<int64_t> LeaseGrant(int64_t ttl_s, int64_t) override {
    const Fate fate = Choose("grant");
    if (fate == Fate::kRequestLost) return Lost();
    const int64_t lease = etcd_.Grant(ttl_s);
    if (fate != Fate::kFine) return Lost();
    return lease;
  }
  Result<int64_t> LeaseKeepAlive(int64_t lease, int64_t) override {
    if (Choose("keepalive") != Fate::kFine) return Lost();
    return etcd_.TtlOf(lease);
  }
  Status LeaseRevoke(int64_t lease, int64_t) override {
    const Fate fate = Choose("revoke");
    if (fate != Fate::kRequestLost) etcd_.EndLease(lease);
    return fate == Fate::kFine ? Status::Ok() : Lost();
  }

  // Carries out what was late, oldest first; what came of each.
  std::vector<KvTxnReply> DeliverLate() {
    std::vector<KvTxnReply> replies;
    for (const KvTxn& txn : std::exchange(late_, {})) replies.push_back(etcd_.Apply(txn));
    return replies;
  }

 private:
  Fate Choose(const std::string& call) { return choose_ ? choose_(call) : Fate::kFine; }
  static Status Lost() { return {Code::kUnavailable, "etcd did not answer"}; }

  MemoryEtcd& etcd_;
  const Chooser choose_;
  std::deque<KvTxn> late_;
};

}  // namespace cairn::scheduler
