// The simulated network: processes with ports, connections between them, and faults on every frame.
// A Port is what a role gets as its Network. Frames are flattened to bytes when they are sent, coded as the
// real network codes them between hosts, and go through its reader, with its limits, when they arrive.
// One thread per fabric.
//
// A connection keeps its order unless the reorder fault strikes; closing it is a message behind the
// frames on their way, so a late frame may still reach an end that has not heard of the close.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/ids.h"
#include "base/random.h"
#include "transport/network.h"
#include "transport/sim/event_queue.h"
#include "transport/sim/faults.h"
#include "transport/sim/trace.h"
#include "transport/tcp/frame_reader.h"
#include "wire/frame.h"

namespace cairn::sim {

class Fabric;

// The driver of a role: gets what the network has for it.
class PortHandler {
 public:
  virtual ~PortHandler() = default;
  virtual void OnConnected(ConnId conn) = 0;
  virtual void OnMessage(ConnId conn, wire::InFrame& frame) = 0;
  virtual void OnDisconnect(ConnId conn) = 0;
  // The largest body of a frame from a peer that has connected (transport/tcp/frame_reader.h).
  virtual uint64_t MostBodyBytes(const wire::FrameHeader&) const { return UINT64_MAX; }
  // The same on a connection that this one has made.
  virtual uint64_t MostAnswerBytes(ConnId, const wire::FrameHeader&) const { return UINT64_MAX; }
};

// A role's place in the network. Ports of one process die together.
class Port final : public Network {
 public:
  ConnId Connect(const wire::Endpoint& to) override;
  void Send(ConnId conn, wire::FramePtr frame) override;
  void Close(ConnId conn) override;
  bool SameHost(ConnId conn) const override;

  int process() const { return process_; }
  const std::string& name() const { return name_; }
  uint64_t tag() const { return tag_; }  // the world's own name for it

 private:
  friend class Fabric;
  Port(Fabric& fabric, int process, std::string name, uint64_t tag, PortHandler* handler)
      : fabric_(fabric), process_(process), name_(std::move(name)), tag_(tag), handler_(handler) {}
  Fabric& fabric_;
  int process_;
  std::string name_;
  uint64_t tag_;
  PortHandler* handler_;
};

// Sees every frame at the moment it is sent, whatever becomes of it. `to` is null until the other
// end has seen its first frame.
class Tap {
 public:
  virtual ~Tap() = default;
  virtual void OnSend(const Port& from, const Port* to, const wire::FrameHeader& header,
                      std::span<const std::byte> body) = 0;
  // The frame goes in fewer bytes than OnSend has seen.
  virtual void OnCoded(wire::Coding) {}
  // A frame that its receiver's reader refuses, though none before it went astray and nothing was refused
  // before: the connection is closed.
  virtual void OnUnreadable(const std::string& from, const std::string& to, const Status& why) = 0;
};

// What a listening process takes, as the real network has it (transport/tcp/tcp_network.h).
struct ListenLimits {
  uint32_t max_body_bytes = wire::kMaxBodyBytes;
  uint32_t max_first_bytes = wire::kMaxUnauthenticatedBodyBytes;  // until the peer is accepted
  // An answer that accepts its receiver; without: whoever has sent a first frame is accepted.
  std::function<bool(const wire::Frame&)> accepts;
};

class Fabric {
 public:
  Fabric(EventQueue& queue, uint64_t seed, BufferPool& pool, Trace& trace, FaultCounts& counts);
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  void set_tap(Tap* tap) { tap_ = tap; }
  void set_profile(const FaultProfile& profile) { profile_ = profile; }

  // A process on a host (hosts outlive processes and are what partitions separate).
  int AddProcess(int host, std::string name);
  // `handler` must outlive the process.
  Port* AddPort(int process, std::string name, uint64_t tag, PortHandler* handler);
  // Connections to `endpoint` go to this process; `accept` says which port gets one, from its first
  // frame (null: the connection is closed).
  using Accept = std::function<Port*(const wire::InFrame& first)>;
  void Listen(int process, const wire::Endpoint& endpoint, Accept accept, ListenLimits limits = {});
  // The process is gone at once. Peers hear of it unless `silent`.
  void Kill(int process, bool silent);
  bool alive(int process) const { return processes_[static_cast<size_t>(process)].alive; }
  // Nothing that the process sends from now on leaves it (it is dying inside a call).
  void Mute(int process) { processes_[static_cast<size_t>(process)].muted = true; }
  // It lives on; what it has sent meanwhile is lost.
  void Unmute(int process) { processes_[static_cast<size_t>(process)].muted = false; }
  // It sends so many frames more and not another one: `then` is called behind the call in which the
  // last of them left, and must kill it.
  void DieAfterSends(int process, uint64_t sends, std::function<void()> then);
  // Handles nothing before this time.
  void Pause(int process, int64_t until_us);
  // It waits in the middle of a call: what comes for it is handled behind that.
  void SetBusy(int process, bool busy);
  void SetLag(int process, int64_t lag_us) { processes_[static_cast<size_t>(process)].lag_us = lag_us; }
  // Nothing passes from host to host until then; frames are lost, or late if `keep`. A block that lasts
  // longer stays as it is.
  void Block(int from_host, int to_host, int64_t until_us, bool keep);
  // What passes from host to host takes so much longer, until everything heals.
  void SlowLink(int from_host, int to_host, int64_t extra_us) {
    slow_links_[{from_host, to_host}] = extra_us;
  }
  void HealAll();

  // Runs `action` on behalf of a process: not if it is dead, later if it is paused.
  void Run(int process, int64_t at_us, std::function<void()> action);
  // Between these hosts no two frames in a row are lost and none is delayed for long: keeps servers
  // from being declared dead where that is not wanted.
  void LimitLosses(int host_a, int host_b);
  EventQueue& queue() { return queue_; }
  // Frames lost, overtaken, doubled or reset on connections of this process's host.
  uint64_t incidents(int host) const;
  // A frame from or to this host was overtaken inside its connection, which TCP does not do.
  bool overtaken(int host) const { return overtaken_.contains(host); }

 private:
  friend class Port;
  struct Process {
    int host;
    std::string name;
    bool alive = true;
    bool muted = false;
    int64_t paused_until_us = 0;
    int64_t lag_us = 0;
    int busy = 0;
    std::deque<std::function<void()>> behind;  // what came while it was busy or paused
    uint64_t sends_left = 0;                   // only if it is to die after them
    std::function<void()> dies;
  };
  struct End {
    Port* port = nullptr;  // null: not yet accepted by one
    int process = -1;
    ConnId conn;
    bool open = false;
    int64_t in_order_us = 0;  // the last frame towards this end arrives then
    bool accepted = true;     // takes large frames
    bool answered = false;    // the one who holds it has said something that does not accept the other
    // A frame towards this end was lost, doubled or overtaken, which TCP does not do: those behind it
    // may come before the peer is accepted.
    bool astray = false;
  };
  struct Connection {
    End ends[2];  // 0 has connected, 1 has accepted
    std::shared_ptr<Accept> accept;
    std::shared_ptr<ListenLimits> limits;
    bool limited = false;
    int losses_in_a_row = 0;
    int64_t begun_us = 0;
    int connect_tries = 0;  // that nothing answered
  };
  struct Listener {
    int process = -1;
    std::shared_ptr<Accept> accept;
    std::shared_ptr<ListenLimits> limits;
  };
  struct Link {
    int64_t blocked_until_us = 0;
    bool keep = false;
  };
  using Bytes = std::shared_ptr<const Buffer>;

  Process& process(int id) { return processes_[static_cast<size_t>(id)]; }
  void Release(int id);
  bool CanDoNothing(const Process& process) const;
  ConnId NewEnd(Connection* connection, int side);
  ConnId Connect(Port& port, const wire::Endpoint& to);
  void FinishConnect(Connection* connection, const wire::Endpoint& to);
  void Send(Port& port, ConnId conn, const wire::Frame& frame);
  Bytes OnTheWay(ConnId conn, const wire::Frame& frame, Bytes plain);
  void Carry(Connection* connection, int to_side, const Bytes& bytes);
  void Close(ConnId conn);
  bool SameHost(ConnId conn) const;
  void CloseEnd(Connection* connection, int side);
  void Deliver(Connection* connection, int side, const Bytes& bytes, bool late);
  void Hand(Connection* connection, int side, const Bytes& bytes);
  Result<wire::InFrame> Read(const Connection& connection, int side, std::span<const std::byte> bytes);
  void OnUnreadable(Connection* connection, int side, const Status& why);
  void Disconnect(Connection* connection, int side, int64_t at_us);
  Connection* AnotherConnection(const Connection& of, int side, bool data);
  int64_t Delay();
  int64_t ExtraDelay(int from_process, int to_process) const;
  bool HostUp(int host) const;
  const Link* Blocked(int from_process, int to_process) const;
  void Count(Fault fault, const Connection& connection);
  void NoteOvertaken(const Connection& connection);

  EventQueue& queue_;
  Random random_, pieces_;
  BufferPool& pool_;
  // Who limits the frame that is being read, if anybody; and where, if that is what he has connected.
  const PortHandler* reads_ = nullptr;
  ConnId reads_answer_;
  const transport::MostBody most_body_;
  transport::FrameReader reader_;  // of all connections: each frame comes whole
  Trace& trace_;
  FaultCounts& counts_;
  FaultProfile profile_;
  Tap* tap_ = nullptr;
  std::deque<Process> processes_;
  std::deque<std::unique_ptr<Port>> ports_;
  std::deque<Connection> connections_;
  std::vector<std::pair<Connection*, int>> ends_;  // by ConnId - 1
  std::map<std::pair<std::string, uint16_t>, Listener> listeners_;
  std::map<std::pair<int, int>, Link> links_;
  std::map<std::pair<int, int>, int64_t> slow_links_;
  std::set<std::pair<int, int>> loss_limits_;
  std::map<int, uint64_t> incidents_;
  std::set<int> overtaken_;
  std::map<const Port*, int64_t> next_old_answer_us_;
};

}  // namespace cairn::sim
