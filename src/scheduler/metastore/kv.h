// What is needed of etcd, and no more: a key-value store with revisions, compare-and-swap
// transactions and leases. etcd_gateway.h is the real one; the simulator and the tests have their
// own. Every call blocks its thread, for `timeout_us` at most. One thread per Kv.
//
// Revisions are positive and rise with every change of the store. A key's create_revision is that
// of the change that made it; a key that is missing has both revisions 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cairn/status.h"

namespace cairn::scheduler {

struct KvCompare {
  enum class Field { kCreateRevision, kModRevision };
  std::string key;
  Field field = Field::kModRevision;
  int64_t revision = 0;  // must be equal
};

struct KvPut {
  std::string key, value;
  int64_t lease = 0;  // the key goes when this lease ends; 0: it stays
};

// If every comparison holds, all of the changes are made at once, otherwise none.
struct KvTxn {
  std::vector<KvCompare> compares;
  std::vector<KvPut> puts;
  std::vector<std::string> deletes;
};

enum class KvOutcome {
  kSucceeded,      // the comparisons held, the changes are durable
  kCompareFailed,  // nothing was changed
  kRefused,        // nothing was changed, and the same again would be refused again; `why` says what to
                   // do
  kUnknown,        // the changes may have been made, may not, or may still be made later
};

struct KvTxnReply {
  KvOutcome outcome = KvOutcome::kUnknown;
  int64_t revision = 0;  // kSucceeded: of the change
  Status why;            // kRefused, kUnknown
};

struct KvEntry {
  std::string value;
  int64_t create_revision = 0, mod_revision = 0;
  int64_t lease = 0;
  bool operator==(const KvEntry&) const = default;
};

class Kv {
 public:
  virtual ~Kv() = default;

  virtual KvTxnReply Txn(const KvTxn& txn, int64_t timeout_us) = 0;

  // Linearizable: sees every change that any client was told of before this was called. Nothing if
  // the key is missing; an error if it could not be found out.
  virtual Result<std::optional<KvEntry>> Range(const std::string& key, int64_t timeout_us) = 0;

  // A new lease that ends when it is not kept alive for `ttl_s` seconds.
  virtual Result<int64_t> LeaseGrant(int64_t ttl_s, int64_t timeout_us) = 0;
  // The seconds that the lease has now; 0 if there is no such lease any more. An error: not known.
  virtual Result<int64_t> LeaseKeepAlive(int64_t lease, int64_t timeout_us) = 0;
  // Ends the lease, and its keys with it. Ok also if it had ended.
  virtual Status LeaseRevoke(int64_t lease, int64_t timeout_us) = 0;
};

}  // namespace cairn::scheduler
