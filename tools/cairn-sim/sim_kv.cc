#include "sim_kv.h"

#include <utility>

#include "scheduler/metastore/etcd_election.h"

namespace cairn::sim {

namespace {
Status Lost() { return {Code::kUnavailable, "etcd did not answer"}; }
constexpr int64_t kNever = INT64_MAX / 4;
}  // namespace

SimEtcd::SimEtcd(World& world, std::string record_key, OnDurable on_durable)
    : world_(world), record_key_(std::move(record_key)), on_durable_(std::move(on_durable)) {}

void SimEtcd::Expire() {
  for (auto it = ends_us_.begin(); it != ends_us_.end();) {
    if (it->second > world_.now_us()) {
      ++it;
      continue;
    }
    etcd_.EndLease(it->first);
    it = ends_us_.erase(it);
  }
}

scheduler::KvTxnReply SimEtcd::Apply(const scheduler::KvTxn& txn, int process) {
  Expire();
  const std::string leader_key = scheduler::LeaderKey(kEtcdPrefix);
  const auto leader = etcd_.Get(leader_key);
  scheduler::KvTxnReply reply = etcd_.Apply(txn);
  if (reply.outcome != scheduler::KvOutcome::kSucceeded) return reply;
  for (const scheduler::KvPut& put : txn.puts) {
    if (put.key == leader_key) leaders_[reply.revision] = process;
    if (put.key != record_key_) continue;
    if (!leader || leaders_[leader->create_revision] != process) {
      world_.context().report("one-leader", "scheduler process " + std::to_string(process) +
                                                " changes the record and does not lead");
    }
    on_durable_(put.value);
  }
  return reply;
}

std::optional<scheduler::KvEntry> SimEtcd::Get(const std::string& key) {
  Expire();
  return etcd_.Get(key);
}

int64_t SimEtcd::Grant(int64_t ttl_s) {
  const int64_t lease = etcd_.Grant(ttl_s);
  ends_us_[lease] = world_.now_us() + ttl_s * 1'000'000;
  return lease;
}

int64_t SimEtcd::KeepAlive(int64_t lease) {
  Expire();
  const int64_t ttl_s = etcd_.TtlOf(lease);
  if (ttl_s > 0) ends_us_[lease] = world_.now_us() + ttl_s * 1'000'000;
  return ttl_s;
}

void SimEtcd::Revoke(int64_t lease) {
  etcd_.EndLease(lease);
  ends_us_.erase(lease);
}

bool SimEtcd::IsCutOff(int process) {
  auto it = cut_until_us_.find(process);
  return it != cut_until_us_.end() && it->second > world_.now_us() && !world_.healed();
}

void SimEtcd::EndLeases() {
  for (int64_t lease : etcd_.Leases()) Revoke(lease);
}

SimKv::SimKv(World& world, SimEtcd& etcd, int process, uint64_t seed)
    : world_(world), etcd_(etcd), process_(process), random_(seed) {}

int64_t SimKv::now_us() const { return world_.fabric().alive(process_) ? world_.now_us() : kNever; }

void SimKv::Pause(int64_t us) { world_.RunAround(process_, us); }

SimKv::Fate SimKv::Choose() {
  if (etcd_.IsCutOff(process_)) return Fate::kRequestLost;
  if (world_.healed() || !random_.Chance(world_.plan().kv_faults)) return Fate::kFine;
  world_.faults().Add(Fault::kKvUnknown);
  switch (random_.Below(3)) {
    case 0: return Fate::kRequestLost;
    case 1: return Fate::kAnswerLost;
    default: return Fate::kLate;
  }
}

bool SimKv::Call(int64_t timeout_us, const std::function<void()>& act) {
  const bool answered = MakeCall(timeout_us, act);
  if (!answered) ++unanswered_;
  return answered;
}

bool SimKv::MakeCall(int64_t timeout_us, const std::function<void()>& act) {
  if (!world_.fabric().alive(process_)) return false;
  const Fate fate = Choose();
  if (fate == Fate::kFine) {
    Pause(random_.Between(100, 3000));  // on its way
    if (!world_.fabric().alive(process_)) {
      if (random_.Chance(0.5)) act();
      return false;
    }
    act();
    Pause(random_.Between(100, 3000));
    return world_.fabric().alive(process_);
  }
  if (fate == Fate::kAnswerLost) act();
  if (fate == Fate::kLate) world_.queue().After(random_.Between(1, 3 * timeout_us), act);
  Pause(random_.Between(timeout_us / 4, timeout_us));
  return false;
}

scheduler::KvTxnReply SimKv::Txn(const scheduler::KvTxn& txn, int64_t timeout_us) {
  // What is carried out late has nobody to tell.
  auto reply = std::make_shared<scheduler::KvTxnReply>();
  if (Call(timeout_us, [reply, txn, &etcd = etcd_, p = process_] { *reply = etcd.Apply(txn, p); }))
    return *reply;
  return {scheduler::KvOutcome::kUnknown, 0, Lost()};
}

Result<std::optional<scheduler::KvEntry>> SimKv::Range(const std::string& key, int64_t timeout_us) {
  auto entry = std::make_shared<std::optional<scheduler::KvEntry>>();
  if (Call(timeout_us, [entry, key, &etcd = etcd_] { *entry = etcd.Get(key); })) return *entry;
  return Lost();
}

Result<int64_t> SimKv::LeaseGrant(int64_t ttl_s, int64_t timeout_us) {
  auto lease = std::make_shared<int64_t>(0);
  if (Call(timeout_us, [lease, ttl_s, &etcd = etcd_] { *lease = etcd.Grant(ttl_s); })) return *lease;
  return Lost();
}

Result<int64_t> SimKv::LeaseKeepAlive(int64_t lease, int64_t timeout_us) {
  auto left_s = std::make_shared<int64_t>(0);
  if (Call(timeout_us, [left_s, lease, &etcd = etcd_] { *left_s = etcd.KeepAlive(lease); })) return *left_s;
  return Lost();
}

Status SimKv::LeaseRevoke(int64_t lease, int64_t timeout_us) {
  return Call(timeout_us, [lease, &etcd = etcd_] { etcd.Revoke(lease); }) ? Status::Ok() : Lost();
}

}  // namespace cairn::sim
