#include "transport/sim/fabric.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "wire/coding.h"

namespace cairn::sim {

namespace {
// A connect that nothing answers is repeated after a second, then after two, and given up, as TCP does
// it and as our connections do.
constexpr int64_t kFirstRetryUs = 1'000'000;
constexpr int64_t kConnectTimeoutUs = 5'000'000;
constexpr int64_t kBetweenOldAnswersUs = 1'500'000;

uint64_t Word(const wire::FrameHeader& header) {
  return (static_cast<uint64_t>(header.type) << 32) | header.body_bytes;
}
}  // namespace

ConnId Port::Connect(const wire::Endpoint& to) { return fabric_.Connect(*this, to); }
void Port::Send(ConnId conn, wire::FramePtr frame) { fabric_.Send(*this, conn, *frame); }
void Port::Close(ConnId conn) { fabric_.Close(conn); }
bool Port::SameHost(ConnId conn) const { return fabric_.SameHost(conn); }

Fabric::Fabric(EventQueue& queue, uint64_t seed, BufferPool& pool, Trace& trace, FaultCounts& counts)
    : queue_(queue),
      random_(seed),
      pieces_(Mix64(seed, 1)),
      pool_(pool),
      most_body_([this](ConnId, const wire::FrameHeader& header) {
        if (reads_ == nullptr) return UINT64_MAX;
        return reads_answer_.value != 0 ? reads_->MostAnswerBytes(reads_answer_, header)
                                        : reads_->MostBodyBytes(header);
      }),
      reader_(pool, wire::kMaxBodyBytes, {.most_body = &most_body_, .small_body = 0}),
      trace_(trace),
      counts_(counts) {}

int Fabric::AddProcess(int host, std::string name) {
  processes_.push_back({.host = host, .name = std::move(name)});
  return static_cast<int>(processes_.size()) - 1;
}

Port* Fabric::AddPort(int process, std::string name, uint64_t tag, PortHandler* handler) {
  ports_.emplace_back(new Port(*this, process, std::move(name), tag, handler));
  return ports_.back().get();
}

void Fabric::Listen(int process, const wire::Endpoint& endpoint, Accept accept, ListenLimits limits) {
  listeners_[{endpoint.host, endpoint.port}] = {process, std::make_shared<Accept>(std::move(accept)),
                                                std::make_shared<ListenLimits>(std::move(limits))};
}

bool Fabric::SameHost(ConnId conn) const {
  if (conn.value == 0 || conn.value > ends_.size()) return false;
  const Connection& connection = *ends_[conn.value - 1].first;
  if (connection.ends[0].process < 0 || connection.ends[1].process < 0) return false;
  auto host = [&](int side) { return processes_[static_cast<size_t>(connection.ends[side].process)].host; };
  return host(0) == host(1);
}

void Fabric::Kill(int id, bool silent) {
  process(id).alive = false;
  trace_.Add(queue_.now_us(), {1, static_cast<uint64_t>(id), silent},
             [&] { return process(id).name + (silent ? " is gone, silently" : " is gone"); });
  for (auto it = listeners_.begin(); it != listeners_.end();) {
    it = it->second.process == id ? listeners_.erase(it) : std::next(it);
  }
  for (Connection& connection : connections_) {
    for (int side : {0, 1}) {
      End& end = connection.ends[side];
      if (!end.open || end.process != id) continue;
      end.open = false;
      if (!silent) CloseEnd(&connection, side);
    }
  }
}

void Fabric::Pause(int id, int64_t until_us) {
  process(id).paused_until_us = std::max(process(id).paused_until_us, until_us);
  queue_.At(until_us, [this, id] { Release(id); });
}

// What has come while it could do nothing, in the order in which it came, and before what comes now.
void Fabric::Release(int id) {
  queue_.At(queue_.now_us(), [this, id] {
    while (!process(id).behind.empty() && !CanDoNothing(process(id))) {
      auto action = std::move(process(id).behind.front());
      process(id).behind.pop_front();
      if (process(id).alive) action();
    }
  });
}

bool Fabric::CanDoNothing(const Process& process) const {
  return process.busy > 0 || process.paused_until_us > queue_.now_us();
}

void Fabric::SetBusy(int id, bool busy) {
  Process& p = process(id);
  p.busy += busy ? 1 : -1;
  if (p.busy > 0) return;
  Release(id);
}

void Fabric::Block(int from_host, int to_host, int64_t until_us, bool keep) {
  Link& link = links_[{from_host, to_host}];
  if (until_us >= link.blocked_until_us) link = {until_us, keep};
}

void Fabric::DieAfterSends(int id, uint64_t sends, std::function<void()> then) {
  process(id).sends_left = sends;
  process(id).dies = std::move(then);
}

void Fabric::HealAll() {
  slow_links_.clear();
  for (auto& [pair, link] : links_) link.blocked_until_us = 0;
  for (Process& p : processes_) {
    p.paused_until_us = 0;
    p.lag_us = 0;
  }
  for (size_t id = 0; id < processes_.size(); ++id) Release(static_cast<int>(id));
}

void Fabric::LimitLosses(int host_a, int host_b) {
  loss_limits_.insert({std::min(host_a, host_b), std::max(host_a, host_b)});
}

uint64_t Fabric::incidents(int host) const {
  auto it = incidents_.find(host);
  return it == incidents_.end() ? 0 : it->second;
}

void Fabric::Run(int id, int64_t at_us, std::function<void()> action) {
  queue_.At(at_us, [this, id, action = std::move(action)]() mutable {
    Process& p = process(id);
    if (!p.alive) return;
    if (CanDoNothing(p) || !p.behind.empty()) {
      p.behind.push_back(std::move(action));
    } else {
      action();
    }
  });
}

ConnId Fabric::NewEnd(Connection* connection, int side) {
  ends_.emplace_back(connection, side);
  return ConnId(ends_.size());
}

int64_t Fabric::Delay() {
  return profile_.delay_us + (profile_.jitter_us > 0 ? random_.Between(0, profile_.jitter_us) : 0);
}

const Fabric::Link* Fabric::Blocked(int from_process, int to_process) const {
  auto it = links_.find(
      {processes_[static_cast<size_t>(from_process)].host, processes_[static_cast<size_t>(to_process)].host});
  return it != links_.end() && it->second.blocked_until_us > queue_.now_us() ? &it->second : nullptr;
}

ConnId Fabric::Connect(Port& port, const wire::Endpoint& to) {
  connections_.emplace_back();
  Connection* connection = &connections_.back();
  connection->ends[0] = {&port, port.process_, NewEnd(connection, 0), true, 0, true};
  connection->begun_us = queue_.now_us();
  if (process(port.process_).muted) return connection->ends[0].conn;
  queue_.After(Delay(), [this, connection, to] { FinishConnect(connection, to); });
  return connection->ends[0].conn;
}

void Fabric::FinishConnect(Connection* connection, const wire::Endpoint& to) {
  if (!connection->ends[0].open) return;
  auto it = listeners_.find({to.host, to.port});
  if (it == listeners_.end()) return Disconnect(connection, 0, queue_.now_us() + Delay());
  if (Blocked(connection->ends[0].process, it->second.process) != nullptr ||
      Blocked(it->second.process, connection->ends[0].process) != nullptr) {
    const int64_t wait_us = kFirstRetryUs << connection->connect_tries++;
    const int64_t next_us = connection->begun_us + 2 * wait_us - kFirstRetryUs;  // 1, 3, 7 s
    const int64_t end_us = connection->begun_us + kConnectTimeoutUs;
    if (next_us >= end_us) return Disconnect(connection, 0, end_us);
    return queue_.At(next_us, [this, connection, to] { FinishConnect(connection, to); });
  }
  const int listener = it->second.process;
  connection->ends[1] = {nullptr, listener, NewEnd(connection, 1), true, 0, false};
  connection->accept = it->second.accept;
  connection->limits = it->second.limits;
  const auto hosts = std::minmax(process(connection->ends[0].process).host, process(listener).host);
  connection->limited = loss_limits_.contains({hosts.first, hosts.second});
  Run(connection->ends[0].process, queue_.now_us() + Delay(), [connection] {
    End& end = connection->ends[0];
    if (end.open) end.port->handler_->OnConnected(end.conn);
  });
}

void Fabric::Send(Port& port, ConnId conn, const wire::Frame& frame) {
  const Process& sender = process(port.process_);
  if (!sender.alive || conn.value == 0 || conn.value > ends_.size()) return;
  auto [connection, side] = ends_[conn.value - 1];
  End& own = connection->ends[side];
  // One that is dying reads on for the rest of a call, by what it would have answered.
  if (!own.accepted && connection->limits->accepts && connection->limits->accepts(frame)) own.accepted = true;
  if (sender.muted) {
    connection->ends[1 - side].astray = true;
    return;
  }
  if (!own.open || connection->ends[1].process < 0) return;
  own.answered |= !own.accepted;
  auto bytes = std::make_shared<const Buffer>(wire::Flatten(frame, pool_));
  const auto& header = *reinterpret_cast<const wire::FrameHeader*>(bytes->data());
  const End& other = connection->ends[1 - side];
  trace_.Add(queue_.now_us(), {2, conn.value, Word(header), header.request_id, header.checksum}, [&] {
    return port.name_ + " -> " + (other.port ? other.port->name_ : process(other.process).name) + " conn " +
           std::to_string(conn.value) + " type " + std::to_string(static_cast<int>(header.type)) +
           " request " + std::to_string(header.request_id) + " round " + std::to_string(header.round) +
           " table " + std::to_string(header.table) + " body " + std::to_string(header.body_bytes);
  });
  if (tap_ != nullptr) tap_->OnSend(port, other.port, header, bytes->bytes().subspan(sizeof(header)));
  Carry(connection, 1 - side, OnTheWay(conn, frame, bytes));
  Process& dying = process(port.process_);
  if (dying.dies && --dying.sends_left == 0) {
    dying.muted = true;
    queue_.At(queue_.now_us(), std::exchange(dying.dies, nullptr));
  }
}

// As a connection hands it to its socket (transport/tcp/connection.cc).
Fabric::Bytes Fabric::OnTheWay(ConnId conn, const wire::Frame& frame, Bytes plain) {
  if (frame.coding == wire::Coding::kPlain || SameHost(conn)) return plain;
  const wire::FramePtr coded = wire::CodeFrame(frame, pool_);
  if (coded == nullptr) return plain;
  if (tap_ != nullptr) tap_->OnCoded(frame.coding);
  return std::make_shared<const Buffer>(wire::Flatten(*coded, pool_));
}

int64_t Fabric::ExtraDelay(int from_process, int to_process) const {
  if (slow_links_.empty()) return 0;
  auto it = slow_links_.find(
      {processes_[static_cast<size_t>(from_process)].host, processes_[static_cast<size_t>(to_process)].host});
  return it == slow_links_.end() ? 0 : it->second;
}

void Fabric::Count(Fault fault, const Connection& connection) {
  counts_.Add(fault);
  for (const End& end : connection.ends) ++incidents_[process(end.process).host];
}

// Copies come out of turn too.
void Fabric::NoteOvertaken(const Connection& connection) {
  for (const End& end : connection.ends) overtaken_.insert(process(end.process).host);
}

// Decides the fate of one frame.
void Fabric::Carry(Connection* connection, int to_side, const Bytes& bytes) {
  End& to = connection->ends[to_side];
  const int64_t now = queue_.now_us();
  int64_t delay =
      Delay() + process(to.process).lag_us + ExtraDelay(connection->ends[1 - to_side].process, to.process);
  if (const Link* link = Blocked(connection->ends[1 - to_side].process, to.process)) {
    ++incidents_[process(to.process).host];
    ++incidents_[process(connection->ends[1 - to_side].process).host];
    if (!link->keep) {
      to.astray = true;
      return;
    }
    delay += link->blocked_until_us - now;
  }
  if (random_.Chance(profile_.reset)) {
    Count(Fault::kReset, *connection);
    to.astray = true;
    Disconnect(connection, 0, now + Delay());
    Disconnect(connection, 1, now + Delay());
    return;
  }
  if (random_.Chance(profile_.loss) && !(connection->limited && connection->losses_in_a_row >= 1)) {
    Count(Fault::kLoss, *connection);
    to.astray = true;
    ++connection->losses_in_a_row;
    return;
  }
  connection->losses_in_a_row = 0;
  if (random_.Chance(profile_.late_duplicate)) {
    Count(Fault::kLateDuplicate, *connection);
    to.astray = true;
    NoteOvertaken(*connection);
    queue_.At(now + random_.Between(profile_.late_us / 16, profile_.late_us),
              [=, this] { Deliver(connection, to_side, bytes, true); });
  }
  if (random_.Chance(profile_.duplicate)) {
    Count(Fault::kDuplicate, *connection);
    to.astray = true;
    NoteOvertaken(*connection);
    queue_.At(now + delay + random_.Between(0, 4 * profile_.jitter_us + 1000),
              [=, this] { Deliver(connection, to_side, bytes, false); });
  }
  if (random_.Chance(profile_.reorder)) {
    Count(Fault::kReorder, *connection);
    NoteOvertaken(*connection);
    to.astray = true;
    queue_.At(now + delay + random_.Between(0, profile_.reorder_us),
              [=, this] { Deliver(connection, to_side, bytes, false); });
    return;
  }
  // Connections whose silence would have a server declared dead are not stalled for long.
  if (random_.Chance(profile_.long_delay)) {
    Count(Fault::kLongDelay, *connection);
    delay += random_.Between(0, connection->limited ? profile_.long_delay_us / 8 : profile_.long_delay_us);
  }
  to.in_order_us = std::max(to.in_order_us + 1, now + delay);
  queue_.At(to.in_order_us, [=, this] { Deliver(connection, to_side, bytes, false); });
}

void Fabric::Deliver(Connection* connection, int side, const Bytes& bytes, bool late) {
  if (!connection->ends[side].open && late) {
    const auto& header = *reinterpret_cast<const wire::FrameHeader*>(bytes->data());
    // Requests of workers. Frames of a stream do not say which thread they are from.
    const bool data = header.type >= wire::FrameType::kPush && header.type <= wire::FrameType::kPull;
    // Answers that outlive their connection come one at a time: a client takes several in a row, each
    // on a fresh connection, for the truth.
    int64_t& next_us = next_old_answer_us_[connection->ends[side].port];
    const bool may = side == 1 || queue_.now_us() >= next_us;
    if (Connection* other = may ? AnotherConnection(*connection, side, data) : nullptr) {
      if (side == 0) next_us = queue_.now_us() + kBetweenOldAnswersUs;
      connection = other;
      connection->ends[side].astray = true;
    }
  }
  End& end = connection->ends[side];
  if (late && Blocked(connection->ends[1 - side].process, end.process) != nullptr) return;
  if (!end.open) {
    // What reaches a closed end is answered by a reset, if there is anybody on that host.
    if (!late && connection->ends[1 - side].open && HostUp(process(end.process).host)) {
      Disconnect(connection, 1 - side, queue_.now_us() + Delay());
    }
    return;
  }
  Run(end.process, queue_.now_us(), [=, this] { Hand(connection, side, bytes); });
}

bool Fabric::HostUp(int host) const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [host](const Process& p) { return p.alive && p.host == host; });
}

void Fabric::Hand(Connection* connection, int side, const Bytes& bytes) {
  End& end = connection->ends[side];
  if (!end.open) return;
  auto parsed = Read(*connection, side, bytes->bytes());
  if (!parsed.ok()) return OnUnreadable(connection, side, parsed.status());
  wire::InFrame frame = std::move(parsed).value();
  trace_.Add(queue_.now_us(), {3, end.conn.value, Word(frame.header), frame.header.request_id}, [&] {
    return process(end.process).name + " gets conn " + std::to_string(end.conn.value) + " type " +
           std::to_string(static_cast<int>(frame.header.type)) + " request " +
           std::to_string(frame.header.request_id);
  });
  if (end.port == nullptr) {
    end.port = (*connection->accept)(frame);
    if (end.port == nullptr) {
      Close(end.conn);
      return;
    }
  }
  end.port->handler_->OnMessage(end.conn, frame);
  if (side == 1 && !connection->limits->accepts) end.accepted = true;
}

// Byte by byte or all at once, as the network likes.
Result<wire::InFrame> Fabric::Read(const Connection& connection, int side, std::span<const std::byte> bytes) {
  const End& end = connection.ends[side];
  reader_.Reset();
  reader_.set_max_body_bytes(side == 0                    ? wire::kMaxBodyBytes
                             : end.accepted || end.astray ? connection.limits->max_body_bytes
                                                          : connection.limits->max_first_bytes);
  // Where a frame went astray, either way, answers come that were not asked for on this connection.
  const bool limited = side == 1 || !(end.astray || connection.ends[1].astray);
  reads_ = limited && end.port != nullptr ? end.port->handler_ : nullptr;
  reads_answer_ = side == 0 ? end.conn : ConnId{};
  wire::InFrame frame;
  while (true) {
    const Result<bool> whole = reader_.Next(&frame);
    if (!whole.ok()) return whole.status();
    if (*whole) break;
    CAIRN_CHECK(!bytes.empty());  // what was sent was whole
    size_t left = bytes.size(), filled = 0;
    if (pieces_.Chance(0.1)) left = std::min<size_t>(left, 1 + pieces_.Below(100));
    for (std::span<std::byte> space : reader_.Space()) {
      const size_t n = std::min(space.size(), left - filled);
      std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(filled), n, space.begin());
      filled += n;
    }
    reader_.Filled(filled);
    bytes = bytes.subspan(filled);
  }
  CAIRN_CHECK(bytes.empty() && reader_.rest().empty());
  return frame;
}

void Fabric::OnUnreadable(Connection* connection, int side, const Status& why) {
  const auto name = [&](int of) {
    const End& end = connection->ends[of];
    return end.port != nullptr ? end.port->name_ : process(end.process).name;
  };
  if (tap_ != nullptr && !connection->ends[side].answered)
    tap_->OnUnreadable(name(1 - side), name(side), why);
  for (int of : {0, 1}) Disconnect(connection, of, queue_.now_us() + Delay());
}

void Fabric::Close(ConnId conn) {
  if (conn.value == 0 || conn.value > ends_.size()) return;
  Connection* const connection = ends_[conn.value - 1].first;
  const int side = ends_[conn.value - 1].second;
  if (!connection->ends[side].open) return;
  trace_.Add(queue_.now_us(), {4, conn.value}, [&] {
    return process(connection->ends[side].process).name + " closes conn " + std::to_string(conn.value);
  });
  connection->ends[side].open = false;
  if (!process(connection->ends[side].process).muted) CloseEnd(connection, side);
}

// Tells the other end, behind everything that is on its way there.
void Fabric::CloseEnd(Connection* connection, int side) {
  End& other = connection->ends[1 - side];
  if (!other.open) return;
  if (const Link* link = Blocked(connection->ends[side].process, other.process); link && !link->keep) return;
  other.in_order_us = std::max(other.in_order_us + 1, queue_.now_us() + Delay());
  Disconnect(connection, 1 - side, other.in_order_us);
}

void Fabric::Disconnect(Connection* connection, int side, int64_t at_us) {
  if (connection->ends[side].process < 0) return;
  Run(connection->ends[side].process, at_us, [this, connection, side] {
    End& end = connection->ends[side];
    if (!end.open) return;
    end.open = false;
    trace_.Add(queue_.now_us(), {5, end.conn.value},
               [&] { return process(end.process).name + " loses conn " + std::to_string(end.conn.value); });
    if (end.port != nullptr) end.port->handler_->OnDisconnect(end.conn);
  });
}

// An open connection between the same two ports, or, for requests that say whose they are, from
// the same host: how a copy that is older than its connection still finds its way.
Fabric::Connection* Fabric::AnotherConnection(const Connection& of, int side, bool data) {
  const Port* to = of.ends[side].port;
  const Port* from = of.ends[1 - side].port;
  if (to == nullptr || from == nullptr) return nullptr;
  for (auto it = connections_.rbegin(); it != connections_.rend(); ++it) {
    if (!it->ends[side].open || it->ends[side].port != to || it->ends[1 - side].port == nullptr) continue;
    const bool same = it->ends[1 - side].port == from;
    const bool same_host = process(it->ends[1 - side].process).host == process(from->process_).host;
    if (same || (data && side == 1 && same_host)) return &*it;
  }
  return nullptr;
}

}  // namespace cairn::sim
