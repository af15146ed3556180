#include "scheduler/metastore/etcd_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

namespace cairn::scheduler {
namespace {
using Json = nlohmann::ordered_json;

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// gRPC's codes, which the gateway passes on.
constexpr int64_t kInvalidArgument = 3, kNotFound = 5, kPermissionDenied = 7, kResourceExhausted = 8,
                  kUnauthenticated = 16;

std::string Text(int64_t number) { return std::to_string(number); }

// A field that is left out is 0; a number may be one, or the text of one.
std::optional<int64_t> Number(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return 0;
  if (found->is_number_integer()) return found->get<int64_t>();
  if (!found->is_string()) return std::nullopt;
  const auto& text = found->get_ref<const std::string&>();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}
std::optional<std::string> Bytes(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return "";
  if (!found->is_string()) return std::nullopt;
  return FromBase64(found->get_ref<const std::string&>());
}

std::string At(const HttpAnswer& answer) { return "etcd at " + answer.member; }

Status NotEtcd(const HttpAnswer& answer) {
  constexpr size_t kShown = 100;
  return {Code::kUnavailable, answer.member + " answers, but not as etcd 3.4 or newer does (HTTP " +
                                  Text(answer.status) + ": " + answer.body.substr(0, kShown) +
                                  "): give the client port of etcd"};
}

// The object of a good answer; or what went wrong, with gRPC's code.
struct Parsed {
  Json object;
  int64_t error_code = 0;
  std::string error;  // etcd's own words
  bool ok = false, is_etcd = true;
};
Parsed Parse(const HttpAnswer& answer) {
  Parsed out;
  out.object = Json::parse(answer.body, nullptr, false);
  if (!out.object.is_object()) {
    out.is_etcd = false;
    return out;
  }
  // A stream (of keepalive) wraps what it says.
  if (const auto result = out.object.find("result"); result != out.object.end() && result->is_object())
    out.object = Json(*result);
  Json error = out.object;
  if (const auto found = error.find("error"); found != error.end() && found->is_object())
    error = Json(*found);
  if (answer.status == 200 && out.object.contains("header")) {
    out.ok = true;
    return out;
  }
  out.is_etcd = error.contains("message") || error.contains("error");
  out.error_code = Number(error, error.contains("code") ? "code" : "grpc_code").value_or(0);
  if (const auto text = error.find("message"); text != error.end() && text->is_string())
    out.error = text->get<std::string>();
  return out;
}

Status ErrorOf(const HttpAnswer& answer, const Parsed& parsed) {
  if (!parsed.is_etcd) return NotEtcd(answer);
  if (parsed.error_code == kUnauthenticated || parsed.error_code == kPermissionDenied ||
      parsed.error.find("user name") != std::string::npos)
    return {Code::kInvalidArgument, At(answer) + " wants a user and a password (" + parsed.error +
                                        "), which cairn can't give: use an etcd without "
                                        "authentication, on a network of its own"};
  return {Code::kUnavailable,
          At(answer) + ": " + (parsed.error.empty() ? "HTTP " + Text(answer.status) : parsed.error)};
}

bool TooLarge(const Parsed& parsed) {
  return parsed.error.find("too large") != std::string::npos ||
         parsed.error.find("larger than max") != std::string::npos;
}

Status TooLargeError(const HttpAnswer& answer, size_t bytes) {
  // Room to grow, and for what etcd adds.
  return {Code::kResourceExhausted, "the cluster's state takes " + Text(static_cast<int64_t>(bytes)) +
                                        " bytes, more than " + At(answer) +
                                        " takes in one request: start every member of etcd with "
                                        "--max-request-bytes=" +
                                        Text(static_cast<int64_t>(2 * bytes + (size_t{1} << 20)))};
}

}  // namespace

std::string TxnRequest(const KvTxn& txn) {
  Json compares = Json::array(), changes = Json::array();
  for (const KvCompare& compare : txn.compares) {
    const bool created = compare.field == KvCompare::Field::kCreateRevision;
    compares.push_back({{"result", "EQUAL"},
                        {"target", created ? "CREATE" : "MOD"},
                        {"key", ToBase64(compare.key)},
                        {created ? "create_revision" : "mod_revision", Text(compare.revision)}});
  }
  for (const KvPut& put : txn.puts) {
    Json one = {{"key", ToBase64(put.key)}, {"value", ToBase64(put.value)}};
    if (put.lease != 0) one["lease"] = Text(put.lease);
    changes.push_back({{"request_put", std::move(one)}});
  }
  for (const std::string& key : txn.deletes)
    changes.push_back({{"request_delete_range", {{"key", ToBase64(key)}}}});
  return Json{{"compare", std::move(compares)}, {"success", std::move(changes)}}.dump();
}

std::string RangeRequest(const std::string& key) {
  // Not "serializable": the answer must be linearizable, which is etcd's default.
  return Json{{"key", ToBase64(key)}}.dump();
}
std::string LeaseGrantRequest(int64_t ttl_s) { return Json{{"TTL", Text(ttl_s)}}.dump(); }
std::string LeaseRequest(int64_t lease) { return Json{{"ID", Text(lease)}}.dump(); }

KvTxnReply ParseTxnReply(const HttpAnswer& answer, size_t bytes) {
  const Parsed parsed = Parse(answer);
  if (!parsed.ok) {
    if (TooLarge(parsed)) return {KvOutcome::kRefused, 0, TooLargeError(answer, bytes)};
    if (parsed.error.find("space exceeded") != std::string::npos)
      return {KvOutcome::kRefused, 0,
              Status(Code::kResourceExhausted,
                     At(answer) + " is full (" + parsed.error +
                         "): compact and defragment it, disarm its alarm (etcdctl alarm disarm), "
                         "and start it "
                         "with --auto-compaction-retention=5m, so that old records go")};
    const Status why = ErrorOf(answer, parsed);
    const bool never = parsed.error_code == kInvalidArgument || parsed.error_code == kNotFound ||
                       why.code() == Code::kInvalidArgument;
    return {never ? KvOutcome::kRefused : KvOutcome::kUnknown, 0, why};
  }
  const auto succeeded = parsed.object.find("succeeded");
  const std::optional<int64_t> revision = Number(parsed.object["header"], "revision");
  if (succeeded == parsed.object.end() || *succeeded == false) return {KvOutcome::kCompareFailed, 0, {}};
  if (*succeeded != true || !revision || *revision <= 0) return {KvOutcome::kUnknown, 0, NotEtcd(answer)};
  return {KvOutcome::kSucceeded, *revision, {}};
}

Result<std::optional<KvEntry>> ParseRangeReply(const HttpAnswer& answer) {
  const Parsed parsed = Parse(answer);
  if (!parsed.ok) return ErrorOf(answer, parsed);
  const auto found = parsed.object.find("kvs");
  if (found == parsed.object.end()) return std::optional<KvEntry>();
  if (!found->is_array() || found->size() != 1 || !(*found)[0].is_object()) return NotEtcd(answer);
  const Json& one = (*found)[0];
  const auto value = Bytes(one, "value");
  const auto created = Number(one, "create_revision"), modified = Number(one, "mod_revision");
  const auto lease = Number(one, "lease");
  if (!value || !created || !modified || !lease || *created <= 0 || *modified < *created)
    return NotEtcd(answer);
  return std::optional<KvEntry>({*value, *created, *modified, *lease});
}

Result<int64_t> ParseLeaseGrantReply(const HttpAnswer& answer) {
  const Parsed parsed = Parse(answer);
  if (!parsed.ok) return ErrorOf(answer, parsed);
  const std::optional<int64_t> lease = Number(parsed.object, "ID");
  if (!lease || *lease == 0) return NotEtcd(answer);
  return *lease;
}

Result<int64_t> ParseLeaseKeepAliveReply(const HttpAnswer& answer) {
  const Parsed parsed = Parse(answer);
  if (!parsed.ok && parsed.error_code == kNotFound) return 0;
  if (!parsed.ok) return ErrorOf(answer, parsed);
  const std::optional<int64_t> left_s = Number(parsed.object, "TTL");
  if (!left_s) return NotEtcd(answer);
  return std::max<int64_t>(*left_s, 0);
}

Status ParseLeaseRevokeReply(const HttpAnswer& answer) {
  const Parsed parsed = Parse(answer);
  if (parsed.ok || parsed.error_code == kNotFound) return Status::Ok();
  return ErrorOf(answer, parsed);
}

bool AnotherMayKnow(const HttpAnswer& answer) {
  const Parsed parsed = Parse(answer);
  return !parsed.ok && (answer.status >= 500 || !parsed.is_etcd || parsed.error_code == kResourceExhausted);
}

std::string ToBase64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t have = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) group = group << 8 | (i < have ? static_cast<uint8_t>(bytes[at + i]) : 0u);
    for (size_t i = 0; i < 4; ++i) out += i <= have ? kDigits[group >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}

std::optional<std::string> FromBase64(std::string_view text) {
  static const std::array<int8_t, 256> kValues = [] {
    std::array<int8_t, 256> values{};
    values.fill(-1);
    for (size_t i = 0; i < kDigits.size(); ++i)
      values[static_cast<uint8_t>(kDigits[i])] = static_cast<int8_t>(i);
    return values;
  }();
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t group = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool padded = i >= text.size() - padding;
    const int8_t value = padded ? int8_t{0} : kValues[static_cast<uint8_t>(text[i])];
    if (value < 0) return std::nullopt;
    group = group << 6 | static_cast<uint32_t>(value);
    if (i % 4 != 3) continue;
    out += static_cast<char>(group >> 16 & 255);
    out += static_cast<char>(group >> 8 & 255);
    out += static_cast<char>(group & 255);
    group = 0;
  }
  for (; padding > 0; --padding) out.pop_back();  // resize: g++ warns of what can't be
  return out;
}

}  // namespace cairn::scheduler
