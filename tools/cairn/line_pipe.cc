#include "line_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace cairn::tool {

void LinePipe::Close() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

int LinePipe::Open() {
  Close();
  text_.clear();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  fd_ = ends[0];
  fcntl(fd_, F_SETFL, O_NONBLOCK);
  return ends[1];
}

std::vector<std::string> LinePipe::Read() {
  while (fd_ >= 0) {
    char piece[4096];
    const ssize_t got = read(fd_, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;  // not yet
    if (got > 0) text_.append(piece, static_cast<size_t>(got));
    if (got <= 0 || text_.size() > max_bytes_) Close();
  }
  std::vector<std::string> lines;
  for (size_t end; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1))
    lines.push_back(text_.substr(0, end));
  return lines;
}

}  // namespace cairn::tool
