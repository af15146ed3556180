// Connections that have said something and are no node's: status callers, launchers, nodes that were
// refused, a node's connection before its newest. Each may stay for a while and all of them are bounded,
// so that nobody can use up the descriptors that nodes need. No I/O, no time of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/ids.h"

namespace cairn::scheduler {

class Callers {
 public:
  Callers(size_t most, int64_t idle_us) : most_(most), idle_us_(idle_us) {}

  // It has spoken at this time, or has just ceased to be a node's.
  void Heard(ConnId conn, int64_t now_us) { heard_us_[conn] = now_us; }
  // It is gone, or a node's now.
  void Forget(ConnId conn) { heard_us_.erase(conn); }
  // Those to be closed: silent for too long, and beyond the bound the longest silent. They are forgotten.
  std::vector<ConnId> TakeLate(int64_t now_us);
  size_t size() const { return heard_us_.size(); }

 private:
  const size_t most_;
  const int64_t idle_us_;
  std::map<ConnId, int64_t> heard_us_;
};

}  // namespace cairn::scheduler
