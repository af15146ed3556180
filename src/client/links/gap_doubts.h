// What a link makes of a shard thread that asks for earlier pushes (docs/internals/consistency.md, rules 23
// and 24). A resume point below what was answered is an old copy of an answer, or the word of a server that
// has lost what it acknowledged; seen on several fresh connections, before the slot has gone on, it can
// only be the latter. Pure; the core's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace cairn::client {

class GapDoubts {
 public:
  // A server that has lost something says so on every connection, an old copy of an answer does not.
  static constexpr uint32_t kMost = 4;

  enum class Verdict {
    kObeyed,  // this was said before on this connection, and all has been sent again since
    kRewind,  // all is to be sent again
    kReopen,  // doubtful: a new connection shows whether it says so again
    kLost,    // acknowledged pushes are lost
  };
  // It asks for the slot's pushes from `number` on. `answered`: up to which they were answered; `kept`:
  // that push is unanswered.
  Verdict OnGap(uint32_t slot, uint64_t number, uint64_t answered, bool kept);
  // The slot goes on: what was doubted was an old copy, and the next such answer is the first again.
  void OnAnswered(uint32_t slot, uint64_t answered);
  // What was said of this slot was said under another epoch.
  void ForgetSlot(uint32_t slot);
  void OnConnectionGone() { rewound_.clear(); }

 private:
  struct Doubt {
    uint32_t slot = 0;
    uint64_t answered = 0;
    uint32_t seen = 0;
  };
  std::map<uint32_t, uint64_t> rewound_;  // slot → resume point that has been obeyed on this connection
  std::optional<Doubt> doubt_;
};

}  // namespace cairn::client
