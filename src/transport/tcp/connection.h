// One TCP connection on one loop: frames in, frames out. Internal to transport/tcp: it includes
// Asio. Everything here runs on the loop's thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/buffer.h"
#include "cairn/status.h"
#include "transport/tcp/frame_reader.h"
#include "transport/tcp/write_queue.h"
#include "wire/frame.h"

namespace cairn::transport {

// A connection that is closed after its last frames is given so long to deliver them.
inline constexpr int64_t kLingerMs = 2'000;
// One write call takes at most so much, and one turn of the loop at most so much of one connection.
inline constexpr size_t kWritePieceBytes = 256 * 1024;
inline constexpr size_t kWritePieces = 64;
inline constexpr size_t kWriteTurnBytes = size_t{2} << 20;

struct ConnectionOptions {
  uint32_t max_body_bytes = wire::kMaxBodyBytes;
  // Above so many queued bytes the connection stops reading until half of them are gone: a peer
  // that asks and does not read its answers is stopped, not buffered for. 0: never (only one side
  // of a pair may stop reading, or both wait for each other).
  size_t stop_reading_at_bytes = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // May call anything of the connection, Release and the Close functions included.
    virtual void OnFrame(Connection& connection, wire::InFrame& frame) = 0;
    // The connection is gone: lost, closed by the peer (`why` is kUnavailable), or closed by us
    // over a bad frame (kProtocol). Once; never after one of the Close functions, nor from inside
    // any function of the connection.
    virtual void OnClosed(Connection& connection, const Status& why) = 0;
  };

  Connection(boost::asio::ip::tcp::socket socket, BufferPool& pool, const ConnectionOptions& options);

  // `owner` must live until it has closed or released the connection or heard OnClosed.
  void Start(Owner* owner);
  // The same, for one whose first bytes were read elsewhere: `frame` comes first, then `rest`.
  void StartWith(Owner* owner, wire::InFrame frame, std::span<const std::byte> rest);
  void Send(wire::FramePtr frame);
  // Drops what is queued.
  void CloseNow();
  // Writes what is queued, for kLingerMs at most, and closes.
  void CloseAfterFlush();
  // Takes the descriptor out (the caller owns it) and, in `rest`, what was read beyond the last
  // frame handed out. Only from inside OnFrame, and with nothing queued.
  int Release(Buffer* rest);
  void Disown(const wire::Frame* frame) { queue_.Disown(frame, pool_); }
  void set_max_body_bytes(uint32_t bytes) { reader_.set_max_body_bytes(bytes); }

  size_t queued_bytes() const { return queue_.bytes(); }
  uint64_t bytes_in() const { return bytes_in_; }
  uint64_t bytes_out() const { return bytes_out_; }
  uint64_t bulk_progress() const { return bulk_progress_; }  // Network::BulkProgress
  const std::string& peer() const { return peer_; }  // "host:port"
  uint64_t tag = 0;                                  // the owner's, to find its own record

 private:
  enum class State { kOpen, kFlushing, kDraining, kClosed };

  void Deliver();
  void Read();
  void OnRead(const boost::system::error_code& error, size_t bytes);
  void ScheduleFlush();
  void Flush();
  void OnFlushed();
  void BadFrame(const Status& why);
  void Lost(const Status& why);
  bool OverBound() const;

  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer linger_;
  BufferPool& pool_;
  const ConnectionOptions options_;
  FrameReader reader_;
  WriteQueue queue_;
  Owner* owner_ = nullptr;
  State state_ = State::kOpen;
  bool reading_ = false;          // a read is under way
  bool flush_scheduled_ = false;  // a flush is posted or waits for room in the socket
  bool paused_ = false;           // over the bound: not reading
  uint64_t bytes_in_ = 0, bytes_out_ = 0;
  uint64_t bulk_progress_ = 0;
  std::string peer_;
};

}  // namespace cairn::transport
