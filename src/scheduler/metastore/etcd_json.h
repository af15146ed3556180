// The requests and answers of etcd's JSON gateway (/v3/…, since etcd 3.4) as text: keys and values
// in base64, 64-bit numbers as strings, fields that are zero left out. Pure functions;
// etcd_gateway.h carries them. Answers are not trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cairn/status.h"
#include "scheduler/metastore/kv.h"

namespace cairn::scheduler {

struct HttpAnswer {
  int status = 0;  // 200, 503, …
  std::string body;
  std::string member;  // who said it, for the errors
};

std::string TxnRequest(const KvTxn& txn);
std::string RangeRequest(const std::string& key);
std::string LeaseGrantRequest(int64_t ttl_s);
std::string LeaseRequest(int64_t lease);  // to keep alive, and to revoke

// `bytes`: how many the transaction puts, for the error that it is too large.
KvTxnReply ParseTxnReply(const HttpAnswer& answer, size_t bytes);
Result<std::optional<KvEntry>> ParseRangeReply(const HttpAnswer& answer);
Result<int64_t> ParseLeaseGrantReply(const HttpAnswer& answer);
Result<int64_t> ParseLeaseKeepAliveReply(const HttpAnswer& answer);
Status ParseLeaseRevokeReply(const HttpAnswer& answer);
// Another member may have a better answer: this one has no leader, stops, or is overloaded.
bool AnotherMayKnow(const HttpAnswer& answer);

std::string ToBase64(std::string_view bytes);
std::optional<std::string> FromBase64(std::string_view text);

}  // namespace cairn::scheduler
