#include "transport/tcp/connection.h"

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"
#include "transport/shm/shm_connection.h"
#include "transport/tcp/tcp_connection.h"
#include "wire/coding.h"
#include "wire/data.h"

namespace cairn::transport {
using boost::system::error_code;

namespace {
// Without the port, which every connection of a peer has its own of; a process on this host as it is.
std::string AddressOf(const std::string& peer) {
  const size_t colon = peer.find_last_of(':');
  return colon == std::string::npos ? peer : peer.substr(0, colon);
}
}  // namespace

std::shared_ptr<Connection> Connection::Over(DetachedPipe pipe, Loop& loop, BufferPool& pool,
                                             const ConnectionOptions& options) {
  try {
    if (pipe.rings) return shm::ShmConnection::Make(std::move(pipe), loop, pool, options);
    return TcpConnection::Make(std::move(pipe), loop, pool, options);
  } catch (const std::bad_alloc&) {
    return nullptr;  // no memory for its buffer: whoever it is may come again
  }
}

Connection::Connection(Loop& loop, BufferPool& pool, const ConnectionOptions& options, std::string peer)
    : loop_(loop),
      pool_(pool),
      linger_(loop.context()),
      starved_(loop.context()),
      stalled_(loop.context()),
      options_(options),
      reader_(pool, options.max_body_bytes,
              {options.most_body, options.receipts, AddressOf(peer), options.conn}),
      peer_(std::move(peer)) {}

void Connection::Start(Owner* owner) {
  owner_ = owner;
  Read();
}

void Connection::StartWith(Owner* owner, wire::InFrame frame, std::span<const std::byte> rest) {
  const auto self = shared_from_this();
  owner_ = owner;
  reader_.Preload(rest);
  owner_->OnFrame(*this, frame);
  Deliver();
}

void Connection::Send(wire::FramePtr frame) {
  if (state_ != State::kOpen) return;
  if (frame->coding != wire::Coding::kPlain && !is_shm()) {
    if (wire::FramePtr coded = wire::CodeFrame(*frame, pool_)) frame = std::move(coded);
  }
  if (frame->transient) return SendAtOnce(std::move(frame));
  queue_.Push(std::move(frame));
  ScheduleFlush();
}

// What it refers to changes after this: the pipe takes it now, or what is left of it is copied. An
// error is found again by the flush that follows.
void Connection::SendAtOnce(wire::FramePtr frame) {
  const bool first = queue_.empty();
  const wire::Frame* transient = frame.get();
  queue_.Push(std::move(frame));
  for (size_t wrote = 1; first && wrote > 0 && !queue_.empty();) {
    iovec pieces[kWritePieces];
    const Result<size_t> written = Write({pieces, queue_.Gather(pieces, kWritePieceBytes)});
    wrote = written.ok() ? *written : 0;
    queue_.Advance(wrote);
    bytes_out_ += wrote;
    if (!queue_.empty()) bulk_progress_ += wrote;
  }
  if (queue_.empty()) return;
  queue_.Disown(transient, pool_);
  ScheduleFlush();
}

bool Connection::OverBound() const {
  return options_.stop_reading_at_bytes > 0 && queue_.bytes() > options_.stop_reading_at_bytes;
}

// Hands out every whole frame, then reads on. The caller holds a reference to this.
void Connection::Deliver() {
  wire::InFrame frame;
  while (state_ == State::kOpen) {
    if (OverBound()) {
      paused_ = true;  // Flush goes on from here
      return;
    }
    Result<bool> next = reader_.Next(&frame);
    if (!next.ok()) return BadFrame(next.status());
    if (!*next && reader_.starved()) return WaitForRoom();
    if (!*next) break;
    owner_->OnFrame(*this, frame);
  }
  if (state_ != State::kClosed) Read();
}

// The bodies of others leave no room for the next one: it is not read until they do.
void Connection::WaitForRoom() {
  if (reader_.StarvedUs(Loop::NowUs()) > kMostStarvedUs)
    return BadFrame({Code::kResourceExhausted, "other messages under way leave no memory for this one"});
  starved_.expires_after(std::chrono::milliseconds(kStarvedRetryMs));
  starved_.async_wait(loop_.InTurn([self = shared_from_this()](const error_code& cancelled) {
    if (!cancelled && self->state_ == State::kOpen) self->Deliver();
  }));
}

void Connection::WatchBody() {
  watching_ = true;
  watched_bytes_ = bytes_in_;
  stalled_.expires_after(std::chrono::milliseconds(kStalledBodyMs));
  stalled_.async_wait(loop_.InTurn([self = shared_from_this()](const error_code& cancelled) {
    self->watching_ = false;
    if (cancelled || self->state_ != State::kOpen || !self->reader_.has_receipt()) return;
    if (self->bytes_in_ != self->watched_bytes_) return self->WatchBody();
    self->Lost({Code::kUnavailable, self->peer_ + ": the rest of a message did not come"});
  }));
}

void Connection::Read() {
  if (reading_) return;
  reading_ = true;
  ReadInto(reader_.Space());
}

void Connection::OnRead(size_t bytes) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  bytes_in_ += bytes;
  if (state_ != State::kOpen) {  // closing: what still comes is not wanted
    reader_.Reset();
    return Read();
  }
  reader_.Filled(bytes);
  if (reader_.in_body()) bulk_progress_ += bytes;
  Deliver();
  if (reader_.has_receipt() && !watching_ && state_ == State::kOpen) WatchBody();
}

// Frames sent by one handler leave together: the flush runs after it.
void Connection::ScheduleFlush() {
  if (flush_scheduled_) return;
  flush_scheduled_ = true;
  FlushSoon();
}

void Connection::Flush() {
  flush_scheduled_ = false;
  size_t turn = 0;
  while (state_ != State::kClosed && !queue_.empty()) {
    if (turn >= kWriteTurnBytes) return ScheduleFlush();
    iovec pieces[kWritePieces];
    const Result<size_t> written = Write({pieces, queue_.Gather(pieces, kWritePieceBytes)});
    if (!written.ok()) return Lost(written.status());
    if (*written == 0) {
      flush_scheduled_ = true;
      FlushWithRoom();
      break;
    }
    queue_.Advance(*written);
    bytes_out_ += *written;
    if (!queue_.empty()) bulk_progress_ += *written;
    turn += *written;
  }
  OnFlushed();
}

// After each turn of writing.
void Connection::OnFlushed() {
  if (state_ == State::kFlushing && queue_.empty()) {
    state_ = State::kDraining;
    AfterLastWrite();
  }
  if (paused_ && state_ == State::kOpen && queue_.bytes() <= options_.stop_reading_at_bytes / 2) {
    paused_ = false;
    Deliver();
  }
}

void Connection::BadFrame(const Status& why) {
  queue_.Push(wire::EncodeError(reader_.bad_header(), why, pool_));
  Owner* owner = std::exchange(owner_, nullptr);
  CloseAfterFlush();
  if (owner != nullptr) owner->OnClosed(*this, why.With(peer_));
}

void Connection::Lost(const Status& why) {
  Owner* owner = std::exchange(owner_, nullptr);
  CloseNow();
  if (owner != nullptr) owner->OnClosed(*this, why);
}

void Connection::CloseNow() {
  owner_ = nullptr;
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  queue_.Clear();
  linger_.cancel();
  starved_.cancel();
  stalled_.cancel();
  ClosePipe();
}

void Connection::CloseAfterFlush() {
  owner_ = nullptr;
  if (state_ != State::kOpen) return;
  state_ = State::kFlushing;
  if (!reading_) {
    reader_.Reset();
    Read();
  }
  ScheduleFlush();
  linger_.expires_after(std::chrono::milliseconds(kLingerMs));
  linger_.async_wait(loop_.InTurn([self = shared_from_this()](const error_code& error) {
    if (!error) self->CloseNow();
  }));
}

DetachedPipe Connection::Release(Buffer* rest) {
  CAIRN_CHECK(state_ == State::kOpen && !reading_ && queue_.empty());
  const std::span<const std::byte> unread = reader_.rest();
  if (!unread.empty()) {
    *rest = pool_.Get(unread.size());
    std::memcpy(rest->data(), unread.data(), unread.size());
  }
  owner_ = nullptr;
  state_ = State::kClosed;
  return DetachPipe();
}

}  // namespace cairn::transport
