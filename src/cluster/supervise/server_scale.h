// How many servers a job should have (`cairn scale --servers`), as one launcher sees it: which are on their
// way out, which were given up, and which are to be started. On several machines the further ones are node
// 0's. No processes, no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "cluster/supervise/process_end.h"

namespace cairn::cluster {

class ServerScale {
 public:
  struct Share {
    uint32_t nodes = 1, node_rank = 0;
    uint32_t servers = 1;  // of each node, at the start
  };
  explicit ServerScale(const Share& share);

  struct Change {
    bool news = false;            // the number wanted is another one
    bool too_many = false;        // some will leave
    std::vector<uint32_t> start;  // their indices
  };
  // `asked_ms`: the answer is no older. One from before a server's end is ignored. `running`: those that are
  // here.
  Change Follow(const ServersSeen& seen, int64_t asked_ms, const std::set<uint32_t>& running);
  // One has ended; `seen`: what the scheduler said then. True: it was on its way out.
  bool OnEnd(uint32_t index, const std::optional<ServersSeen>& seen, int64_t now_ms);
  void GiveUp(uint32_t index) { given_up_.insert(index); }
  // Whether the scheduler's answer came after the last server had ended.
  bool IsNew(int64_t asked_ms) const { return asked_ms > changed_ms_; }

  uint32_t wanted() const { return wanted_; }  // in the whole job
  uint32_t given_up() const { return static_cast<uint32_t>(given_up_.size()); }
  const std::set<uint32_t>& leaving() const { return leaving_; }   // those here that have been told to go
  uint32_t CountStaying(const std::set<uint32_t>& running) const;  // the others

 private:
  const Share share_;
  uint32_t wanted_;
  std::set<uint32_t> leaving_, given_up_;
  int64_t changed_ms_ = 0;  // when the last one ended
};

}  // namespace cairn::cluster
