// What a child tells the launcher line by line, through a descriptor of its own (--ready-fd).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cairn::tool {

class LinePipe {
 public:
  // `max_bytes`: of a line. A pipe with more is closed.
  explicit LinePipe(size_t max_bytes) : max_bytes_(max_bytes) {}
  ~LinePipe() { Close(); }
  LinePipe(const LinePipe&) = delete;
  LinePipe& operator=(const LinePipe&) = delete;

  // For the next child; what the one before has not said is forgotten. The descriptor that the child writes
  // to: the caller closes it. -1: errno says why.
  int Open();
  // The whole lines that have come so far.
  std::vector<std::string> Read();
  int fd() const { return fd_; }  // -1: nothing will come

 private:
  void Close();

  const size_t max_bytes_;
  int fd_ = -1;
  std::string text_;
};

}  // namespace cairn::tool
