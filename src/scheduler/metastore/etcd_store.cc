#include "scheduler/metastore/etcd_store.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/planted.h"
#include "scheduler/metastore/etcd_election.h"

namespace cairn::scheduler {
namespace {

std::string TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::vector<std::byte> BytesOf(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

EtcdStore::EtcdStore(Kv& kv, EtcdStoreOptions options)
    : kv_(kv),
      options_(std::move(options)),
      leader_key_(LeaderKey(options_.prefix)),
      record_key_(RecordKey(options_.prefix)) {
  CAIRN_CHECK(options_.now_us && options_.pause);
}

Result<std::vector<std::vector<std::byte>>> EtcdStore::Load() {
  const int64_t deadline_us = options_.now_us() + options_.give_up_after_us;
  while (true) {
    const auto found = kv_.Range(record_key_, options_.call_timeout_us);
    if (found.ok()) {
      std::vector<std::vector<std::byte>> records;
      if (*found) {
        record_revision_ = (*found)->mod_revision;
        records.push_back(BytesOf((*found)->value));
      }
      return records;
    }
    if (options_.now_us() >= deadline_us) {
      broken_ = found.status().With("the scheduler's record " + record_key_ + " can't be read");
      return broken_;
    }
    options_.pause(options_.pause_us);
  }
}

Status EtcdStore::Write(std::span<const std::byte> record) {
  if (!broken_.ok()) return broken_;
  const int64_t deadline_us = options_.now_us() + options_.give_up_after_us;
  KvTxn txn;
  txn.compares = {{leader_key_, KvCompare::Field::kCreateRevision, options_.leader_revision},
                  {record_key_, KvCompare::Field::kModRevision, record_revision_}};
  if (CAIRN_BUG(kRecordNotCompared)) txn.compares.clear();
  txn.puts = {{record_key_, TextOf(record)}};
  while (true) {
    const KvTxnReply reply = kv_.Txn(txn, options_.call_timeout_us);
    if (reply.outcome == KvOutcome::kSucceeded) {
      record_revision_ = reply.revision;
      return Status::Ok();
    }
    if (reply.outcome == KvOutcome::kRefused) return broken_ = reply.why;
    if (!reply.why.ok()) last_error_ = reply.why;
    // A comparison that failed may be the doing of an earlier try of this very write.
    Found found = Found::kNotKnown;
    while ((found = ReadBack(txn.puts[0].value)) == Found::kNotKnown && options_.now_us() < deadline_us) {
      options_.pause(options_.pause_us);
    }
    if (found == Found::kWritten) return Status::Ok();
    if (found == Found::kBroken) return broken_;
    if (options_.now_us() >= deadline_us) return broken_ = TooLate(record.size());
    options_.pause(options_.pause_us);
  }
}

// The record first: if the leader key is ours after that, it was ours all the time, because a key
// that is made anew gets another create_revision.
EtcdStore::Found EtcdStore::ReadBack(const std::string& value) {
  const auto record = kv_.Range(record_key_, options_.call_timeout_us);
  const auto leader = record.ok() ? kv_.Range(leader_key_, options_.call_timeout_us) : record;
  if (!leader.ok()) {
    last_error_ = leader.status();
    return Found::kNotKnown;
  }
  if (Status replaced = CheckLeader(*leader); !replaced.ok())
    return Broken(replaced.code(), std::string(replaced.message()));
  const int64_t revision = *record ? (*record)->mod_revision : 0;
  if (revision == record_revision_) return Found::kNotWritten;
  if (*record && (*record)->value == value) {
    record_revision_ = revision;
    return Found::kWritten;
  }
  return Broken(Code::kIo, "etcd's key " + record_key_ +
                               " was changed by somebody who is not the leader: give every job a prefix of "
                               "its own, and let nobody write there");
}

Status EtcdStore::CheckLeader(const std::optional<KvEntry>& leader) const {
  if (!leader)
    return {Code::kRetired,
            "this scheduler no longer leads: its lease ended, so etcd did not hear it "
            "for too long: start it again, it will be a standby or the leader"};
  if (leader->create_revision != options_.leader_revision)
    return {Code::kRetired, "this scheduler no longer leads, the one at " + leader->value +
                                " does: start it again, it will be a standby"};
  return Status::Ok();
}

Status EtcdStore::Confirm() {
  if (!broken_.ok()) return broken_;
  const auto leader = kv_.Range(leader_key_, options_.call_timeout_us);
  if (!leader.ok()) return {Code::kUnavailable, "etcd can't be asked: " + leader.status().message()};
  return broken_ = CheckLeader(*leader);
}

EtcdStore::Found EtcdStore::Broken(Code code, std::string text) {
  broken_ = Status(code, std::move(text));
  return Found::kBroken;
}

Status EtcdStore::TooLate(size_t bytes) const {
  return {Code::kOutcomeUnknown, "whether etcd has a record of " + std::to_string(bytes) +
                                     " bytes could not be found out within " +
                                     std::to_string(options_.give_up_after_us / 1'000'000) +
                                     " s: see that most members of etcd are alive, then start this "
                                     "scheduler again; the last error was: " +
                                     last_error_.message()};
}

}  // namespace cairn::scheduler
