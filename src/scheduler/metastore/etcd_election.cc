#include "scheduler/metastore/etcd_election.h"

#include <optional>
#include <utility>

namespace cairn::scheduler {

std::string LeaderKey(const std::string& prefix) { return prefix + "/leader"; }
std::string RecordKey(const std::string& prefix) { return prefix + "/record"; }

EtcdElection::EtcdElection(Kv& kv, EtcdElectionOptions options) : kv_(kv), options_(std::move(options)) {}

Result<EtcdElection::Standing> EtcdElection::Campaign() {
  const auto found = kv_.Range(LeaderKey(options_.prefix), options_.call_timeout_us);
  if (!found.ok()) return found.status();
  const std::optional<KvEntry>& leader = *found;
  if (!leader) return Create();
  // Ours although we don't know it: an earlier try whose outcome was not known.
  revision_ = lease_ != 0 && leader->lease == lease_ ? leader->create_revision : 0;
  return Standing{revision_, revision_ != 0 ? options_.address : leader->value};
}

Result<EtcdElection::Standing> EtcdElection::Create() {
  // The last try may still be under way, or has failed: without its lease it can't come to
  // anything.
  if (lease_ != 0) (void)kv_.LeaseRevoke(lease_, options_.call_timeout_us);
  lease_ = revision_ = 0;
  const Result<int64_t> lease = kv_.LeaseGrant(options_.ttl_s, options_.call_timeout_us);
  if (!lease.ok()) return lease.status();
  lease_ = *lease;
  const std::string key = LeaderKey(options_.prefix);
  KvTxn txn;
  txn.compares = {{key, KvCompare::Field::kCreateRevision, 0}};
  txn.puts = {{key, options_.address, lease_}};
  const KvTxnReply reply = kv_.Txn(txn, options_.call_timeout_us);
  if (reply.outcome == KvOutcome::kSucceeded) {
    revision_ = reply.revision;
    return Standing{revision_, options_.address};
  }
  if (reply.outcome == KvOutcome::kCompareFailed) return Standing{};  // somebody was faster
  return reply.why;
}

Result<bool> EtcdElection::KeepAlive() {
  const Result<int64_t> left_s = kv_.LeaseKeepAlive(lease_, options_.call_timeout_us);
  if (!left_s.ok()) return left_s.status();
  if (*left_s > 0) return true;
  // The lease is a hint; the key decides.
  const auto found = kv_.Range(LeaderKey(options_.prefix), options_.call_timeout_us);
  if (!found.ok()) return found.status();
  return found->has_value() && (*found)->create_revision == revision_;
}

void EtcdElection::Resign() {
  if (lease_ != 0) (void)kv_.LeaseRevoke(lease_, options_.call_timeout_us);
  lease_ = revision_ = 0;
}

}  // namespace cairn::scheduler
