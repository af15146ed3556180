// A log of lines that keeps the newest: above its bound the file is renamed to <name>.1, where it replaces
// an older one, and begun again. So there are at most two files, and at most twice the bound.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace cairn::cluster {

class RotatingFile {
 public:
  static constexpr uint64_t kNoBound = UINT64_MAX;

  RotatingFile() = default;
  // Appends to what is there. False: it can't be written.
  bool Open(const std::string& path, uint64_t max_bytes);
  // Nothing happens where it is not open.
  void Write(std::string_view line);
  // False once, when what was written can't be: it is closed then.
  bool Flush();
  bool is_open() const { return file_.is_open(); }
  const std::string& path() const { return path_; }

 private:
  void Rotate();
  std::ofstream file_;
  std::string path_;
  uint64_t bytes_ = 0, max_bytes_ = kNoBound;
};

}  // namespace cairn::cluster
