// Network (transport/network.h) for one role on one loop: over TCP, and with peers on this host
// through shared memory where both sides have it (transport/shm/). Everything but the constructor
// and destructor runs on the loop's thread, the events included; an event never comes from inside
// a call of Connect, Send or Close.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/buffer.h"
#include "base/log.h"
#include "transport/network.h"
#include "transport/shm/choice.h"
#include "transport/tcp/frame_reader.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/loop.h"
#include "wire/frame.h"

namespace cairn::transport {

// A peer that does not read its answers is no longer listened to above this many queued bytes.
inline constexpr size_t kStopReadingAtBytes = size_t{1} << 20;
inline constexpr int64_t kConnectTimeoutMs = 5'000;

struct TcpNetworkOptions {
  // Bodies of an accepted connection once the role has accepted the peer. Until then the limit is
  // kMaxUnauthenticatedBodyBytes.
  uint32_t max_accepted_body_bytes = wire::kMaxBodyBytes;
  // Whether a frame that the role sends to a peer means that it has accepted it (a HelloReply).
  // Empty: it has when it has heard the first frame and not closed the connection.
  std::function<bool(const wire::Frame&)> accepts;
  // What bounds the bodies of accepted connections (frame_reader.h). `receipts` outlives the network.
  MostBody most_body = {};
  ReceiptBudget* receipts = nullptr;
  // What bounds the bodies on connections that Connect has made: answers. Empty: kMaxBodyBytes alone does.
  MostBody most_answer = {};
  // Back-pressure on accepted connections.
  size_t stop_reading_at_bytes = kStopReadingAtBytes;
  // Close drops what is queued. For a client: its frames may refer to memory that its caller takes
  // back. Otherwise Close writes what is queued first (a refusal must reach the peer).
  bool close_drops_queued = false;
  std::optional<PipeChoice> pipe = {};  // of what Connect connects; not set: as the environment says
  LogLine log;                          // peers that send garbage; required
};

class TcpNetwork final : public Network {
 public:
  struct Events {
    std::function<void(ConnId)> on_connected;
    std::function<void(ConnId, wire::InFrame&)> on_message;
    std::function<void(ConnId)> on_disconnect;
  };

  // `loop` and `pool` must outlive it.
  TcpNetwork(Loop& loop, BufferPool& pool, Events events, TcpNetworkOptions options);
  // On the loop's thread, or when its thread has ended. Drops every connection.
  ~TcpNetwork() override;

  ConnId Connect(const wire::Endpoint& to) override;
  void Send(ConnId conn, wire::FramePtr frame) override;
  void Close(ConnId conn) override;
  bool SharesMemory(ConnId conn) const override;
  bool SameHost(ConnId conn) const override;
  bool FellBack(ConnId conn) const override;
  uint64_t BulkProgress(ConnId conn) const override;
  // In words, where the last attempt to connect failed because the host's name is unknown; else empty.
  const std::string& unknown_host() const;

  // Takes a connection over: its first frame comes to on_message from inside this call.
  void Adopt(AcceptedConnection accepted);
  // Sends `answer` and closes; no event comes.
  void Refuse(AcceptedConnection accepted, wire::FramePtr answer);
  // After this no connection reads what `frame` refers to: call it before telling the owner of the
  // memory that the request has ended (transport/tcp/write_queue.h).
  void Disown(const wire::Frame* frame);

  // Flushes and closes every connection; nothing is connected, adopted or sent after it.
  void CloseAll();
  // Connections that are open or still flushing.
  size_t alive() const;

  size_t connections() const;
  size_t shm_connections() const;  // those of them that go through shared memory
  size_t queued_bytes() const;     // not yet written, over all connections
  uint64_t bytes_in() const;
  uint64_t bytes_out() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn::transport
