#include "scheduler_call.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>

#include "base/buffer.h"
#include "transport/tcp/sockets.h"
#include "wire/frame.h"

namespace cairn::tool {
namespace {

// A socket whose every wait ends at one deadline.
class Call {
 public:
  Call(const wire::Endpoint& to, int64_t timeout_ms)
      : name_(wire::ToString(to)), deadline_(Clock::now() + std::chrono::milliseconds(timeout_ms)) {}
  ~Call() {
    if (fd_ >= 0) close(fd_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Status Connect(const wire::Endpoint& to) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    const int error = getaddrinfo(to.host.c_str(), std::to_string(to.port).c_str(), &hints, &found);
    if (error != 0)
      return {Code::kUnavailable, "the scheduler's host " + to.host + " is unknown: " + gai_strerror(error)};
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
    Status last(Code::kUnavailable, "no address");
    for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
      last = ConnectTo(*address);
      if (last.ok()) return last;
    }
    return last;
  }
  Status Send(const void* data, size_t size) {
    return Transfer(size, POLLOUT, [&](size_t at) {
      return send(fd_, static_cast<const char*>(data) + at, size - at, MSG_NOSIGNAL);
    });
  }
  Status Receive(void* data, size_t size) {
    return Transfer(size, POLLIN,
                    [&](size_t at) { return recv(fd_, static_cast<char*>(data) + at, size - at, 0); });
  }
  // Ends our half, so that what was sent is read before the connection goes.
  void FinishSending() { shutdown(fd_, SHUT_WR); }

 private:
  using Clock = std::chrono::steady_clock;

  Status Failed(const std::string& what) const {
    return {Code::kUnavailable, "the scheduler at " + name_ + " " + what};
  }
  Status ConnectTo(const addrinfo& address) {
    if (fd_ >= 0) close(fd_);
    fd_ = socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol);
    if (fd_ < 0) return Failed(std::string("can't be reached: ") + strerror(errno));
    transport::TuneOutgoing(fd_);
    if (connect(fd_, address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS) {
      return Failed(std::string("can't be reached: ") + strerror(errno));
    }
    if (!WaitFor(POLLOUT)) return Failed("can't be reached in time");
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    return error == 0 ? Status::Ok() : Failed(std::string("can't be reached: ") + strerror(error));
  }
  bool WaitFor(short events) {
    while (true) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
      pollfd wait{fd_, events, 0};
      const int ready = left <= 0 ? 0 : poll(&wait, 1, static_cast<int>(left));
      if (ready >= 0) return ready == 1;
      if (errno != EINTR) return false;
    }
  }
  template <class Step>
  Status Transfer(size_t size, short events, Step step) {
    for (size_t at = 0; at < size;) {
      if (!WaitFor(events))
        return Status(Code::kDeadlineExceeded, "the scheduler at " + name_ + " did not answer in time");
      const ssize_t moved = step(at);
      if (moved > 0) {
        at += static_cast<size_t>(moved);
      } else if (moved == 0) {
        return Failed("closed the connection");
      } else if (errno != EAGAIN && errno != EINTR) {
        return Failed(std::string("is gone: ") + strerror(errno));
      }
    }
    return Status::Ok();
  }

  std::string name_;
  Clock::time_point deadline_;
  int fd_ = -1;
};

Status SendMessage(Call& call, const wire::Endpoint& scheduler, const wire::ControlMessage& message,
                   BufferPool& pool) {
  if (Status status = call.Connect(scheduler); !status.ok()) return status;
  const Buffer bytes = wire::Flatten(*wire::EncodeControl(message, pool), pool);
  return call.Send(bytes.data(), bytes.size());
}

}  // namespace

Status TellScheduler(const wire::Endpoint& scheduler, const wire::ControlMessage& message,
                     int64_t timeout_ms) {
  BufferPool pool;
  Call call(scheduler, timeout_ms);
  Status status = SendMessage(call, scheduler, message, pool);
  if (status.ok()) call.FinishSending();
  return status;
}

Result<wire::ControlMessage> AskScheduler(const wire::Endpoint& scheduler,
                                          const wire::ControlMessage& message, int64_t timeout_ms) {
  BufferPool pool;
  Call call(scheduler, timeout_ms);
  if (Status status = SendMessage(call, scheduler, message, pool); !status.ok()) return status;
  wire::FrameHeader header;
  if (Status status = call.Receive(&header, sizeof header); !status.ok()) return status;
  if (Status status = wire::CheckHeader(header, wire::kMaxBodyBytes); !status.ok()) return status;
  Buffer body = pool.Get(header.body_bytes);
  body.Resize(header.body_bytes);
  if (Status status = call.Receive(body.data(), body.size()); !status.ok()) return status;
  if (Status status = wire::CheckBody(header, body.bytes()); !status.ok()) return status;
  return wire::DecodeControl(header, body.bytes());
}

Result<wire::Endpoint> FindLeader(const std::vector<wire::Endpoint>& schedulers, int64_t timeout_ms) {
  if (schedulers.size() == 1) return schedulers.front();
  std::string errors;
  for (const wire::Endpoint& scheduler : schedulers) {
    const auto answer =
        AskScheduler(scheduler, wire::StatusRequest{1}, timeout_ms / static_cast<int64_t>(schedulers.size()));
    const auto* refusal = answer.ok() ? std::get_if<wire::Refusal>(&*answer) : nullptr;
    if (answer.ok() && (refusal == nullptr || refusal->code != Code::kUnavailable)) return scheduler;
    errors +=
        "\n  " + wire::ToString(scheduler) + ": " + (answer.ok() ? refusal->text : answer.status().message());
  }
  return Status(Code::kUnavailable, "none of the schedulers leads:" + errors);
}

}  // namespace cairn::tool
