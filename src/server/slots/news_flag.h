// Something for the next heartbeat has changed: the parts of a shard raise the flag, its driver takes it.
#pragma once

#include <utility>

namespace cairn::server {

class NewsFlag {
 public:
  void Raise() { raised_ = true; }
  bool Take() { return std::exchange(raised_, false); }

 private:
  bool raised_ = false;
};

}  // namespace cairn::server
