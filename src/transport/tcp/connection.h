// One connection on one loop: frames in, frames out. The pipe that carries the bytes is a TCP socket
// (tcp/tcp_connection.h) or a pair of rings in shared memory (shm/shm_connection.h); everything that
// is the same for both is here. Internal to the transport: it includes Asio. Everything here runs on
// the loop's thread.
#pragma once

#include <sys/uio.h>

#include <array>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/buffer.h"
#include "cairn/status.h"
#include "transport/tcp/detached_pipe.h"
#include "transport/tcp/frame_reader.h"
#include "transport/tcp/loop.h"
#include "transport/tcp/write_queue.h"
#include "wire/frame.h"

namespace cairn::transport {

// A connection that is closed after its last frames is given so long to deliver them.
inline constexpr int64_t kLingerMs = 2'000;
// A body that finds no room in the budget is tried again so often, and refused after so long.
inline constexpr int64_t kStarvedRetryMs = 10;
inline constexpr int64_t kMostStarvedUs = 30'000'000;
// A large body of which nothing comes for so long holds room that others may need: the connection is lost.
inline constexpr int64_t kStalledBodyMs = 30'000;
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
  // Guards of what is read (frame_reader.h). They outlive the connection.
  const MostBody* most_body = nullptr;
  ReceiptBudget* receipts = nullptr;
  ConnId conn = {};  // its name, for most_body
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

  // Over whatever pipe it is; null if the system refuses it (the pipe is closed then).
  static std::shared_ptr<Connection> Over(DetachedPipe pipe, Loop& loop, BufferPool& pool,
                                          const ConnectionOptions& options);
  virtual ~Connection() = default;

  // `owner` must live until it has closed or released the connection or heard OnClosed.
  void Start(Owner* owner);
  // The same, for one whose first bytes were read elsewhere: `frame` comes first, then `rest`.
  void StartWith(Owner* owner, wire::InFrame frame, std::span<const std::byte> rest);
  void Send(wire::FramePtr frame);
  // Drops what is queued.
  void CloseNow();
  // Writes what is queued, for kLingerMs at most, and closes.
  void CloseAfterFlush();
  // Takes the pipe out and, in `rest`, what was read beyond the last frame handed out. Only from
  // inside OnFrame, and with nothing queued.
  DetachedPipe Release(Buffer* rest);
  void Disown(const wire::Frame* frame) { queue_.Disown(frame, pool_); }
  void set_max_body_bytes(uint32_t bytes) { reader_.set_max_body_bytes(bytes); }

  size_t queued_bytes() const { return queue_.bytes(); }
  uint64_t bytes_in() const { return bytes_in_; }
  uint64_t bytes_out() const { return bytes_out_; }
  uint64_t bulk_progress() const { return bulk_progress_; }  // Network::BulkProgress
  const std::string& peer() const { return peer_; }          // "host:port", or which process
  virtual bool is_shm() const = 0;
  uint64_t tag = 0;  // the owner's, to find its own record

 protected:
  Connection(Loop& loop, BufferPool& pool, const ConnectionOptions& options, std::string peer);

  // What a pipe does. None of these calls back at once, but for Write.
  // Later OnRead, or Lost. One at a time; `space` stays until then.
  virtual void ReadInto(const std::array<std::span<std::byte>, 2>& space) = 0;
  // Bytes taken, at once; 0: no room. An error is a lost connection.
  virtual Result<size_t> Write(std::span<const iovec> pieces) = 0;
  virtual void FlushSoon() = 0;      // later Flush, after the handler that runs now
  virtual void FlushWithRoom() = 0;  // later Flush, when there is room
  // Everything has been written. The peer is to get it all.
  virtual void AfterLastWrite() = 0;
  virtual void ClosePipe() = 0;
  virtual DetachedPipe DetachPipe() = 0;

  // The pipe calls these, and holds a reference meanwhile.
  void OnRead(size_t bytes);
  void Flush();
  void Lost(const Status& why);

  bool closed() const { return state_ == State::kClosed; }
  Loop& loop_;
  BufferPool& pool_;

 private:
  enum class State { kOpen, kFlushing, kDraining, kClosed };

  void Deliver();
  void Read();
  void ScheduleFlush();
  void SendAtOnce(wire::FramePtr frame);
  void OnFlushed();
  void BadFrame(const Status& why);
  bool OverBound() const;
  void WaitForRoom();
  void WatchBody();

  boost::asio::steady_timer linger_;
  boost::asio::steady_timer starved_;  // until the next try, while the budget has no room
  boost::asio::steady_timer stalled_;  // until the next look at a large body
  bool watching_ = false;              // stalled_ runs
  uint64_t watched_bytes_ = 0;         // bytes_in_ at the last look
  const ConnectionOptions options_;
  FrameReader reader_;
  WriteQueue queue_;
  Owner* owner_ = nullptr;
  State state_ = State::kOpen;
  bool reading_ = false;          // a read is under way
  bool flush_scheduled_ = false;  // a flush is to come
  bool paused_ = false;           // over the bound: not reading
  uint64_t bytes_in_ = 0, bytes_out_ = 0;
  uint64_t bulk_progress_ = 0;
  std::string peer_;
};

}  // namespace cairn::transport
