#include "scheduler/node/etcd_gateway.h"

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <utility>

#include "base/check.h"
#include "scheduler/metastore/etcd_json.h"

namespace cairn::scheduler {
namespace {
namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kMaxAnswerBytes = uint64_t{128} << 20;
constexpr auto kLookAround = std::chrono::milliseconds(50);  // how often `give_up` is asked

// A connection to a member, with all that its handlers touch: whoever gives up on it drops it, and
// the handlers, which own it too, end in peace.
struct Connection {
  explicit Connection(asio::io_context& io) : resolver(io), socket(io) {
    parser.emplace();
    parser->body_limit(kMaxAnswerBytes);
  }
  tcp::resolver resolver;
  tcp::socket socket;
  boost::beast::flat_buffer buffer;
  http::request<http::string_body> request;
  std::optional<http::response_parser<http::string_body>> parser;
  bool done = false;
  boost::system::error_code error;
};
using ConnectionPtr = std::shared_ptr<Connection>;

}  // namespace

class EtcdGateway::Impl {
 public:
  Impl(std::vector<wire::Endpoint> members, std::function<bool()> give_up)
      : members_(std::move(members)), give_up_(std::move(give_up)) {
    CAIRN_CHECK(!members_.empty());
  }
  ~Impl() {
    Drop();
    io_.restart();
    io_.poll();  // the handlers of dropped connections
  }

  struct Attempt {
    std::optional<HttpAnswer> answer;
    Status why;         // no answer
    bool sent = false;  // the member may have got it
  };

  // Asks one member after the other; `once`: not another one after the request may have arrived.
  Attempt Call(const char* path, const std::string& body, int64_t timeout_us, bool once) {
    const auto deadline = Clock::now() + std::chrono::microseconds(timeout_us);
    std::string errors;
    Attempt attempt;
    for (size_t tried = 0; tried < members_.size(); ++tried) {
      const auto now = Clock::now();
      if (now >= deadline || GiveUp()) break;
      // A member that hangs leaves time for the others.
      const auto share = now + (deadline - now) / static_cast<int>(members_.size() - tried);
      attempt = Ask(path, body, share, once ? deadline : share);
      if (attempt.answer && (once || !AnotherMayKnow(*attempt.answer))) return attempt;
      Drop();
      if (attempt.answer)
        attempt.why = {Code::kUnavailable, "HTTP " + std::to_string(attempt.answer->status)};
      errors += (errors.empty() ? "" : "; ") + ToString(members_[at_]) + " " + attempt.why.message();
      const bool last = tried + 1 == members_.size();
      at_ = (at_ + 1) % members_.size();
      if (once && attempt.sent) break;
      if (attempt.answer && last) return attempt;
    }
    attempt.answer.reset();
    attempt.why = {Code::kUnavailable, "etcd does not answer (" + (errors.empty() ? "no time left" : errors) +
                                           "): are its members running, and are these their client ports?"};
    return attempt;
  }

 private:
  Attempt Ask(const char* path, const std::string& body, Clock::time_point connect_by,
              Clock::time_point answer_by) {
    Attempt attempt;
    if (!connection_) {
      if (Status status = Connect(connect_by); !status.ok()) {
        attempt.why = status;
        return attempt;
      }
    }
    const ConnectionPtr c = connection_;
    c->request = {http::verb::post, path, 11};
    c->request.set(http::field::host, ToString(members_[at_]));
    c->request.set(http::field::content_type, "application/json");
    c->request.body() = body;
    c->request.prepare_payload();
    c->parser.emplace();
    c->parser->body_limit(kMaxAnswerBytes);
    attempt.sent = true;
    Begin(*c);
    http::async_write(c->socket, c->request, [c](boost::system::error_code e, size_t) {
      if (e) return End(*c, e);
      http::async_read(c->socket, c->buffer, *c->parser,
                       [c](boost::system::error_code error, size_t) { End(*c, error); });
    });
    attempt.why = Wait(*c, answer_by, "did not answer in time", "lost the connection: ");
    if (!attempt.why.ok()) return attempt;
    http::response<http::string_body> response = c->parser->release();
    attempt.answer = {static_cast<int>(response.result_int()), std::move(response.body()),
                      ToString(members_[at_])};
    if (!response.keep_alive()) Drop();
    return attempt;
  }

  Status Connect(Clock::time_point by) {
    const wire::Endpoint& member = members_[at_];
    connection_ = std::make_shared<Connection>(io_);
    const ConnectionPtr c = connection_;
    Begin(*c);
    const auto connect = [c](const auto& endpoints) {
      asio::async_connect(c->socket, endpoints, [c](boost::system::error_code e, const tcp::endpoint&) {
        if (!e) c->socket.set_option(tcp::no_delay(true), e);
        End(*c, e);
      });
    };
    boost::system::error_code not_numeric;
    const auto address = asio::ip::make_address(member.host, not_numeric);
    if (!not_numeric) {
      connect(std::vector<tcp::endpoint>{{address, member.port}});
    } else {
      c->resolver.async_resolve(
          member.host, std::to_string(member.port),
          [c, connect](boost::system::error_code e, const tcp::resolver::results_type& found) {
            if (e) return End(*c, e);
            connect(found);
          });
    }
    Status status = Wait(*c, by, "can't be reached in time", "can't be reached: ");
    if (!status.ok()) Drop();
    return status;
  }

  static void Begin(Connection& c) {
    c.done = false;
    c.error = {};
  }
  static void End(Connection& c, boost::system::error_code error) {
    c.done = true;
    c.error = error;
  }

  // Runs the handlers until this connection's step is over.
  Status Wait(Connection& c, Clock::time_point by, const char* late, const char* failed) {
    while (!c.done && !GiveUp() && Clock::now() < by) {
      io_.restart();
      io_.run_one_until(std::min(by, Clock::now() + kLookAround));
    }
    if (!c.done) return {Code::kUnavailable, late};
    if (c.error) return {Code::kUnavailable, failed + c.error.message()};
    return Status::Ok();
  }

  bool GiveUp() const { return give_up_ && give_up_(); }

  void Drop() {
    if (!connection_) return;
    boost::system::error_code ignored;
    connection_->resolver.cancel();
    connection_->socket.close(ignored);
    connection_.reset();
  }

  const std::vector<wire::Endpoint> members_;
  size_t at_ = 0;  // the member that is asked first
  const std::function<bool()> give_up_;
  asio::io_context io_;
  ConnectionPtr connection_;
};

EtcdGateway::EtcdGateway(std::vector<wire::Endpoint> members, std::function<bool()> give_up)
    : impl_(std::make_unique<Impl>(std::move(members), std::move(give_up))) {}
EtcdGateway::~EtcdGateway() = default;

KvTxnReply EtcdGateway::Txn(const KvTxn& txn, int64_t timeout_us) {
  size_t bytes = 0;
  for (const KvPut& put : txn.puts) bytes += put.value.size();
  const auto attempt = impl_->Call("/v3/kv/txn", TxnRequest(txn), timeout_us, true);
  // Not even sent is no different for the caller: it looks and tries again.
  if (!attempt.answer) return {KvOutcome::kUnknown, 0, attempt.why};
  return ParseTxnReply(*attempt.answer, bytes);
}

Result<std::optional<KvEntry>> EtcdGateway::Range(const std::string& key, int64_t timeout_us) {
  const auto attempt = impl_->Call("/v3/kv/range", RangeRequest(key), timeout_us, false);
  if (!attempt.answer) return attempt.why;
  return ParseRangeReply(*attempt.answer);
}

Result<int64_t> EtcdGateway::LeaseGrant(int64_t ttl_s, int64_t timeout_us) {
  const auto attempt = impl_->Call("/v3/lease/grant", LeaseGrantRequest(ttl_s), timeout_us, false);
  if (!attempt.answer) return attempt.why;
  return ParseLeaseGrantReply(*attempt.answer);
}

Result<int64_t> EtcdGateway::LeaseKeepAlive(int64_t lease, int64_t timeout_us) {
  const auto attempt = impl_->Call("/v3/lease/keepalive", LeaseRequest(lease), timeout_us, false);
  if (!attempt.answer) return attempt.why;
  return ParseLeaseKeepAliveReply(*attempt.answer);
}

Status EtcdGateway::LeaseRevoke(int64_t lease, int64_t timeout_us) {
  const auto attempt = impl_->Call("/v3/lease/revoke", LeaseRequest(lease), timeout_us, false);
  if (!attempt.answer) return attempt.why;
  return ParseLeaseRevokeReply(*attempt.answer);
}

}  // namespace cairn::scheduler
