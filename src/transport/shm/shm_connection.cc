#include "transport/shm/shm_connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <utility>

#include "transport/shm/rendezvous.h"

namespace cairn::transport::shm {
namespace asio = boost::asio;
using asio::local::stream_protocol;
using boost::system::error_code;

namespace {
// One turn of the loop reads at most so much of one connection.
constexpr size_t kReadTurnBytes = size_t{2} << 20;

std::string PeerName(int fd) {
  const auto peer = PeerOf(fd);
  return peer ? "process " + std::to_string(peer->pid) + " on this host" : "a process on this host";
}
}  // namespace

std::shared_ptr<Connection> ShmConnection::Make(DetachedPipe pipe, Loop& loop, BufferPool& pool,
                                                const ConnectionOptions& options) {
  stream_protocol::socket socket(loop.context());
  error_code error;
  std::string peer = PeerName(pipe.fd);
  socket.assign(stream_protocol(), pipe.fd, error);
  if (error) return nullptr;  // `pipe` still owns the descriptor
  (void)pipe.TakeDescriptor();
  auto made = std::make_shared<ShmConnection>(std::move(socket), std::move(pipe.rings), std::move(peer), loop,
                                              pool, options);
  made->WaitForBell();
  return made;
}

ShmConnection::ShmConnection(stream_protocol::socket socket, std::unique_ptr<RingPair> rings,
                             std::string peer, Loop& loop, BufferPool& pool, const ConnectionOptions& options)
    : Connection(loop, pool, options, std::move(peer)), socket_(std::move(socket)), rings_(std::move(rings)) {
  loop_.AddPolled(this);
}

void ShmConnection::WaitForBell() {
  auto self = std::static_pointer_cast<ShmConnection>(shared_from_this());
  // Who has the turn looks at the rings anyway.
  socket_.async_wait(stream_protocol::socket::wait_read, loop_.InAnyTurn([self] {
    if (!self->closed()) self->OnBell();
  }));
}

// Only takes note: the rings are looked at right after it.
void ShmConnection::OnBell() {
  char bells[256];
  const ssize_t n = ::recv(socket_.native_handle(), bells, sizeof(bells), MSG_DONTWAIT);
  if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) return WaitForBell();
  peer_gone_ = true;
}

void ShmConnection::WakePeer() {
  // If there is no room for a byte, there are bytes that will wake it.
  const char bell = 1;
  (void)::send(socket_.native_handle(), &bell, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ShmConnection::ReadInto(const std::array<std::span<std::byte>, 2>& space) {
  space_ = space;
  reading_into_space_ = true;
}

Result<size_t> ShmConnection::Write(std::span<const iovec> pieces) {
  const size_t written = rings_->Write(pieces);
  if (rings_->broken()) return Broken();
  if (written > 0 && rings_->PeerWaitsForData()) WakePeer();
  return written;
}

Status ShmConnection::Broken() const {
  return {Code::kProtocol, peer() + " wrote counters into shared memory that can't be"};
}

// Not for a few bytes at a time.
bool ShmConnection::RoomIsWorthIt() {
  const size_t worth = std::min({queued_bytes(), RingPair::kPieceBytes, rings_->ring_bytes() / 4});
  return rings_->Room(worth) >= worth || rings_->broken();
}

bool ShmConnection::HasWork() {
  if (flush_soon_ || peer_gone_) return true;
  if (reading_into_space_ && (rings_->Readable() > 0 || rings_->broken())) return true;
  return flush_with_room_ && RoomIsWorthIt();
}

bool ShmConnection::Poll() {
  if (!HasWork()) return false;
  const auto self = shared_from_this();
  ReadRing();
  if (closed()) return true;
  if (std::exchange(flush_soon_, false) || (flush_with_room_ && RoomIsWorthIt())) {
    flush_with_room_ = false;
    Flush();
  }
  if (closed()) return true;
  if (rings_->broken()) {
    Lost(Broken());
  } else if (peer_gone_ && (!reading_into_space_ || rings_->Readable() == 0)) {
    Lost(Status(Code::kUnavailable, peer() + " closed the connection"));
  }
  return true;
}

void ShmConnection::ReadRing() {
  size_t turn = 0;
  while (!closed() && reading_into_space_ && turn < kReadTurnBytes) {
    const size_t bytes = rings_->Read(space_);
    if (bytes == 0) return;
    if (rings_->PeerWaitsForRoom()) WakePeer();
    turn += bytes;
    reading_into_space_ = false;
    OnRead(bytes);
  }
}

void ShmConnection::AskToBeWoken() {
  if (reading_into_space_) rings_->AskForData();
  if (flush_with_room_) rings_->AskForRoom();
}

void ShmConnection::Awake() { rings_->Awake(); }

// What is in the ring stays there for the peer when we have gone.
void ShmConnection::AfterLastWrite() { CloseNow(); }

void ShmConnection::ClosePipe() {
  loop_.RemovePolled(this);
  rings_->Awake();
  error_code ignored;
  socket_.close(ignored);
}

DetachedPipe ShmConnection::DetachPipe() {
  loop_.RemovePolled(this);
  rings_->Awake();
  error_code error;
  const int fd = socket_.release(error);
  return {fd, std::move(rings_)};
}

}  // namespace cairn::transport::shm
