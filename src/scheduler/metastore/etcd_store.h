// A MetaStore in etcd: the newest record under PREFIX/record (each record is the whole state, so to
// append and to replace are the same). Every write compares, in one transaction, that the leader
// key is still the one that this scheduler created, and that the record is still the one that it
// last read or wrote: an old leader, awake again, can't change anything. One thread.
//
// A write whose outcome is not known is read back until it is. What is found then:
//
//   leader key     record                      meaning
//   not ours       any                         replaced: broken
//   ours           the one before              not written (yet): written again, with the same
//                                              comparisons, so at most one of the tries comes in
//   ours           the one that was written    written
//   ours           another                     somebody writes past the protocol: broken
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "scheduler/metastore/kv.h"
#include "scheduler/metastore/metastore.h"

namespace cairn::scheduler {

struct EtcdStoreOptions {
  std::string prefix;
  int64_t leader_revision = 0;  // EtcdElection::Standing::revision: what was won
  int64_t call_timeout_us = 2'000'000;
  int64_t give_up_after_us = 10'000'000;  // a write whose outcome is not known by then breaks the store
  int64_t pause_us = 100'000;             // between two questions that were not answered
  std::function<int64_t()> now_us;        // monotonic; required
  std::function<void(int64_t us)> pause;  // required
};

class EtcdStore final : public MetaStore {
 public:
  // `kv` must outlive it.
  EtcdStore(Kv& kv, EtcdStoreOptions options);

  Result<std::vector<std::vector<std::byte>>> Load() override;
  // Once one of these has failed, all later ones do. kRetired: another scheduler leads.
  Status Append(std::span<const std::byte> record) override { return Write(record); }
  Status Replace(std::span<const std::byte> record) override { return Write(record); }
  Status Confirm() override;

 private:
  enum class Found { kWritten, kNotWritten, kBroken, kNotKnown };

  Status Write(std::span<const std::byte> record);
  Found ReadBack(const std::string& value);
  // Ok: this scheduler has it.
  Status CheckLeader(const std::optional<KvEntry>& leader) const;
  Found Broken(Code code, std::string text);
  Status TooLate(size_t bytes) const;

  Kv& kv_;
  const EtcdStoreOptions options_;
  const std::string leader_key_, record_key_;
  int64_t record_revision_ = 0;  // of the record that was last read or written; 0: there is none
  Status last_error_;            // the newest reason why something is not known
  Status broken_;
};

}  // namespace cairn::scheduler
