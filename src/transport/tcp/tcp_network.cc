#include "transport/tcp/tcp_network.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/connector.h"
#include "transport/tcp/sockets.h"

namespace cairn::transport {
namespace {
constexpr int64_t kLogEveryUs = 1'000'000;  // lines about bad peers
constexpr int64_t kUnknownHostEveryUs = 10'000'000;
}  // namespace

class TcpNetwork::Impl final : public Connection::Owner {
 public:
  Impl(Loop& loop, BufferPool& pool, Events events, TcpNetworkOptions options)
      : loop_(loop),
        pool_(pool),
        events_(std::move(events)),
        options_(std::move(options)),
        pipe_(options_.pipe ? Result<PipeChoice>(*options_.pipe) : PipeFromEnvironment()) {}

  ~Impl() override {
    for (auto& [id, link] : links_) {
      if (link.connector) link.connector->Cancel();
      if (link.connection) link.connection->CloseNow();
    }
    for (auto& weak : closing_) {
      if (auto connection = weak.lock()) connection->CloseNow();
    }
  }

  ConnId Connect(const wire::Endpoint& to) {
    const ConnId id = NextId();
    if (closed_) return id;
    // The result never comes from inside Start, so the record is there before it.
    auto connector =
        Connector::Start(loop_, to, pipe_.ok() ? *pipe_ : PipeChoice{}, kConnectTimeoutMs * 1000,
                         [this, id](Result<DetachedPipe> pipe) { OnConnect(id, std::move(pipe)); });
    links_[id.value].connector = std::move(connector);
    return id;
  }

  void Send(ConnId id, wire::FramePtr frame) {
    const auto it = links_.find(id.value);
    if (it == links_.end() || !it->second.connection) return;
    Link& link = it->second;
    if (!link.accepted && options_.accepts && options_.accepts(*frame)) Accept(link);
    link.connection->Send(std::move(frame));
  }

  void Close(ConnId id) {
    const auto it = links_.find(id.value);
    if (it == links_.end()) return;
    Link link = std::move(it->second);
    links_.erase(it);
    if (link.connector) link.connector->Cancel();
    if (link.connection) CloseConnection(link.connection, options_.close_drops_queued);
  }

  bool SharesMemory(ConnId id) const {
    const auto it = links_.find(id.value);
    return it != links_.end() && it->second.connection && it->second.connection->is_shm();
  }

  bool SameHost(ConnId id) const {
    const auto it = links_.find(id.value);
    return it != links_.end() && it->second.same_host;
  }

  bool FellBack(ConnId id) const {
    const auto it = links_.find(id.value);
    return it != links_.end() && it->second.connection && it->second.fell_back;
  }

  const std::string& unknown_host() const { return unknown_host_; }
  uint64_t BulkProgress(ConnId id) const {
    const auto it = links_.find(id.value);
    return it == links_.end() || !it->second.connection ? 0 : it->second.connection->bulk_progress();
  }

  void Adopt(AcceptedConnection accepted) {
    if (closed_) return;
    const bool same_host = EndsOnSameHost(accepted.pipe_.fd);
    const ConnId id = NextId();
    const auto connection = Assign(accepted, id);
    if (!connection) return;
    connection->tag = id.value;
    links_[id.value] = {.connection = connection, .accepted = false, .same_host = same_host};
    connection->StartWith(this, std::move(accepted.first_), accepted.rest_.bytes());
  }

  void Refuse(AcceptedConnection accepted, wire::FramePtr answer) {
    const auto connection = Assign(accepted, ConnId{});
    if (!connection) return;
    connection->Send(std::move(answer));
    CloseConnection(connection, /*drop=*/false);
  }

  void Disown(const wire::Frame* frame) {
    for (auto& [id, link] : links_) {
      if (link.connection && link.connection->queued_bytes() > 0) link.connection->Disown(frame);
    }
    for (auto& weak : closing_) {
      if (auto connection = weak.lock()) connection->Disown(frame);
    }
  }

  size_t queued_bytes() const {
    size_t sum = 0;
    for (const auto& [id, link] : links_) sum += link.connection ? link.connection->queued_bytes() : 0;
    for (const auto& weak : closing_) {
      if (const auto connection = weak.lock()) sum += connection->queued_bytes();
    }
    return sum;
  }

  void CloseAll() {
    closed_ = true;
    std::vector<ConnId> ids;
    for (const auto& [id, link] : links_) ids.emplace_back(ConnId(id));
    for (ConnId id : ids) Close(id);
  }

  size_t alive() {
    Prune();
    return links_.size() + closing_.size();
  }

  size_t connections() const {
    size_t count = 0;
    for (const auto& [id, link] : links_) count += link.connection != nullptr;
    return count;
  }

  size_t shm_connections() const {
    size_t count = 0;
    for (const auto& [id, link] : links_) count += link.connection != nullptr && link.connection->is_shm();
    return count;
  }

  uint64_t bytes_in() const {
    uint64_t sum = gone_in_;
    for (const auto& [id, link] : links_) sum += link.connection ? link.connection->bytes_in() : 0;
    return sum;
  }

  uint64_t bytes_out() const {
    uint64_t sum = gone_out_;
    for (const auto& [id, link] : links_) sum += link.connection ? link.connection->bytes_out() : 0;
    return sum;
  }

  void OnFrame(Connection& connection, wire::InFrame& frame) override {
    const ConnId id(connection.tag);
    events_.on_message(id, frame);
    if (options_.accepts) return;
    const auto it = links_.find(id.value);
    if (it != links_.end() && !it->second.accepted) Accept(it->second);
  }

  void OnClosed(Connection& connection, const Status& why) override {
    const ConnId id(connection.tag);
    const bool answered = why.code() == Code::kProtocol || why.code() == Code::kResourceExhausted;
    if (answered) Say("closed a connection: " + why.message());
    Count(connection);
    const auto it = links_.find(id.value);
    CAIRN_CHECK(it != links_.end());
    const std::shared_ptr<Connection> gone = std::move(it->second.connection);
    links_.erase(it);
    // One that ends over a bad frame still flushes its answer, and what was queued before it.
    if (options_.close_drops_queued) {
      gone->CloseNow();
    } else if (answered) {
      Prune();
      closing_.push_back(gone);
    }
    events_.on_disconnect(id);
  }

 private:
  struct Link {
    std::shared_ptr<Connector> connector;    // while connecting
    std::shared_ptr<Connection> connection;  // after it
    bool accepted = true;                    // false: a peer that is still to be accepted
    bool same_host = false;
    bool fell_back = false;  // to TCP
  };

  void Accept(Link& link) {
    link.accepted = true;
    link.connection->set_max_body_bytes(options_.max_accepted_body_bytes);
  }

  ConnId NextId() { return ConnId(++last_id_); }

  void OnConnect(ConnId id, Result<DetachedPipe> pipe) {
    const auto it = links_.find(id.value);
    if (it == links_.end()) return;
    it->second.fell_back = it->second.connector->fell_back();
    it->second.connector.reset();
    const Status failed = pipe_.ok() ? pipe.status() : pipe_.status();
    it->second.same_host = failed.ok() && EndsOnSameHost(pipe->fd);
    ConnectionOptions limits;
    if (options_.most_answer) limits.most_body = &options_.most_answer;
    limits.conn = id;
    unknown_host_ = failed.code() == Code::kNotFound ? failed.message() : "";
    auto connection = failed.ok() ? Connection::Over(std::move(*pipe), loop_, pool_, limits) : nullptr;
    if (!connection) {
      // Others are tried again without a word; these won't go away by themselves.
      const bool exhausted = failed.code() == Code::kResourceExhausted;
      if (!pipe_.ok() || pipe_->kind == PipeKind::kShm || exhausted) {
        Say(failed.message());
      } else if (failed.code() == Code::kNotFound) {
        SayUnknown(failed.message());
      }
      links_.erase(it);
      return events_.on_disconnect(id);
    }
    connection->tag = id.value;
    it->second.connection = connection;
    events_.on_connected(id);
    if (links_.contains(id.value)) connection->Start(this);
  }

  std::shared_ptr<Connection> Assign(AcceptedConnection& accepted, ConnId id) {
    ConnectionOptions limits;
    limits.max_body_bytes = wire::kMaxUnauthenticatedBodyBytes;
    limits.stop_reading_at_bytes = options_.stop_reading_at_bytes;
    if (options_.most_body) limits.most_body = &options_.most_body;
    limits.receipts = options_.receipts;
    limits.conn = id;
    return Connection::Over(std::move(accepted.pipe_), loop_, pool_, limits);
  }

  void CloseConnection(const std::shared_ptr<Connection>& connection, bool drop) {
    Count(*connection);
    if (drop) return connection->CloseNow();
    connection->CloseAfterFlush();
    Prune();
    closing_.push_back(connection);
  }

  void Count(const Connection& connection) {
    gone_in_ += connection.bytes_in();
    gone_out_ += connection.bytes_out();
  }

  void Prune() {
    std::erase_if(closing_, [](const std::weak_ptr<Connection>& weak) { return weak.expired(); });
  }

  void Say(const std::string& line) {
    const int64_t now_us = Loop::NowUs();
    if (now_us < quiet_until_us_) return;
    quiet_until_us_ = now_us + kLogEveryUs;
    options_.log(line);
  }

  // A name may come to be known, but whoever mistyped it would wait for nothing.
  void SayUnknown(const std::string& line) {
    const int64_t now_us = Loop::NowUs();
    if (now_us < unknown_quiet_until_us_) return;
    unknown_quiet_until_us_ = now_us + kUnknownHostEveryUs;
    options_.log(line);
  }

  Loop& loop_;
  BufferPool& pool_;
  const Events events_;
  const TcpNetworkOptions options_;
  const Result<PipeChoice> pipe_;
  uint64_t last_id_ = 0;
  bool closed_ = false;
  std::unordered_map<uint64_t, Link> links_;
  std::vector<std::weak_ptr<Connection>> closing_;  // flushing; each lives kLingerMs at most
  uint64_t gone_in_ = 0, gone_out_ = 0;             // of connections that are no more
  int64_t quiet_until_us_ = 0, unknown_quiet_until_us_ = 0;
  std::string unknown_host_;
};

TcpNetwork::TcpNetwork(Loop& loop, BufferPool& pool, Events events, TcpNetworkOptions options)
    : impl_(std::make_unique<Impl>(loop, pool, std::move(events), std::move(options))) {}
TcpNetwork::~TcpNetwork() = default;
ConnId TcpNetwork::Connect(const wire::Endpoint& to) { return impl_->Connect(to); }
void TcpNetwork::Send(ConnId conn, wire::FramePtr frame) { impl_->Send(conn, std::move(frame)); }
void TcpNetwork::Close(ConnId conn) { impl_->Close(conn); }
const std::string& TcpNetwork::unknown_host() const { return impl_->unknown_host(); }
uint64_t TcpNetwork::BulkProgress(ConnId conn) const { return impl_->BulkProgress(conn); }
bool TcpNetwork::SameHost(ConnId conn) const { return impl_->SameHost(conn); }
bool TcpNetwork::SharesMemory(ConnId conn) const { return impl_->SharesMemory(conn); }
bool TcpNetwork::FellBack(ConnId conn) const { return impl_->FellBack(conn); }
void TcpNetwork::Adopt(AcceptedConnection accepted) { impl_->Adopt(std::move(accepted)); }
void TcpNetwork::Refuse(AcceptedConnection accepted, wire::FramePtr answer) {
  impl_->Refuse(std::move(accepted), std::move(answer));
}
void TcpNetwork::Disown(const wire::Frame* frame) { impl_->Disown(frame); }
size_t TcpNetwork::queued_bytes() const { return impl_->queued_bytes(); }
void TcpNetwork::CloseAll() { impl_->CloseAll(); }
size_t TcpNetwork::alive() const { return impl_->alive(); }
size_t TcpNetwork::connections() const { return impl_->connections(); }
size_t TcpNetwork::shm_connections() const { return impl_->shm_connections(); }
uint64_t TcpNetwork::bytes_in() const { return impl_->bytes_in(); }
uint64_t TcpNetwork::bytes_out() const { return impl_->bytes_out(); }

}  // namespace cairn::transport
