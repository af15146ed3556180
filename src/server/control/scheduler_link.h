// A server's connection to its scheduler, or to one of several: dials until it has one, and others beside one
// that is silent. What is said over it is the server control's business. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/buffer.h"
#include "base/ids.h"
#include "server/control/server_control.h"
#include "transport/link/dialer.h"
#include "transport/network.h"
#include "wire/control.h"

namespace cairn::server {

class SchedulerLink {
 public:
  // All outlive it. Begins to dial.
  SchedulerLink(const ServerControlOptions& options, Network& network, BufferPool& pool, int64_t now_us);

  bool connected() const { return conn_ != ConnId{}; }
  bool Is(ConnId conn) const { return conn == conn_; }
  void Send(const wire::ControlMessage& message);  // requires connected()

  // True if it is connected by this.
  bool OnConnected(ConnId conn, int64_t now_us);
  // True if this was the connection; DialAgain has to follow, or Close.
  bool OnDisconnect(ConnId conn, int64_t now_us);
  void OnTick(int64_t now_us);
  // Something came on the connection: no other one is tried any more.
  void OnHeard(int64_t now_us);
  // What came is from a scheduler that leads.
  void OnLed() { dialer_.ResetPause(); }

  // Goes on without the connection: it is lost, it makes no sense, or its scheduler does not lead (then only
  // where there is another one).
  void DialAgain(int64_t now_us);
  void Drop(int64_t now_us);
  void LeaveForAnother(int64_t now_us);
  void Close();  // for good

  int64_t heartbeat_us() const { return heartbeat_us_; }
  void SetHeartbeat(int64_t heartbeat_us);
  std::string Place() const;       // of the scheduler that it talks to, or dials
  std::string Schedulers() const;  // all of them, for the user

 private:
  const ServerControlOptions& options_;
  Network& network_;
  BufferPool& pool_;
  Dialer dialer_;
  ConnId conn_;           // 0: none yet, or lost
  int64_t heard_us_ = 0;  // on this connection
  int64_t heartbeat_us_;  // as the scheduler says
};

}  // namespace cairn::server
