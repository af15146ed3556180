#include "cluster/supervise/rotating_file.h"

#include <cstdio>

namespace cairn::cluster {

bool RotatingFile::Open(const std::string& path, uint64_t max_bytes) {
  path_ = path;
  max_bytes_ = max_bytes;
  bytes_ = 0;
  file_.open(path_, std::ios::app);
  return file_.is_open();
}

void RotatingFile::Rotate() {
  const std::string older = path_ + ".1";
  file_.close();
  // Where it can't be renamed, its lines go: the newest count.
  const bool kept = std::rename(path_.c_str(), older.c_str()) == 0;
  file_.open(path_, std::ios::trunc);
  bytes_ = 0;
  if (kept) file_ << "[cairn] the lines before this are in " << older << "\n";
}

void RotatingFile::Write(std::string_view line) {
  if (!file_.is_open()) return;
  if (bytes_ > 0 && bytes_ + line.size() + 1 > max_bytes_) Rotate();
  bytes_ += line.size() + 1;
  file_ << line << '\n';
}

bool RotatingFile::Flush() {
  if (!file_.is_open()) return true;
  if (file_.flush()) return true;
  file_.close();
  return false;
}

}  // namespace cairn::cluster
