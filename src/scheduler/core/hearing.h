// Who has been heard when, and from when on a node's silence counts as its death (rule 5). Time only:
// no sockets, no clock of its own, no records. Used by the scheduler's core, on its thread.
//
// Silence that everybody shares is the scheduler's own. A scheduler that hears nobody on another machine
// is *isolated*, and blames nobody until it hears somebody again; then everybody gets a whole detection
// time to come back, and no less than a network needs to find everybody again. That has an end: a silence of
// `lost_after` counts, whoever shares it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "base/ids.h"

namespace cairn::scheduler {

class Hearing {
 public:
  struct Options {
    int64_t heartbeat_us = 1'000'000;   // how often a node speaks
    int64_t dead_after_us = 5'000'000;  // the detection time
    int64_t lost_after_us = 60'000'000;
  };
  enum class Where : uint8_t { kUnknown, kThisHost, kElsewhere };

  Hearing(const Options& options, int64_t now_us);

  // A node that should speak from now on.
  void Expect(Incarnation node, int64_t now_us);
  // A frame of this node has come. Ends an isolation.
  void Hear(Incarnation node, Where where, int64_t now_us);
  void Forget(Incarnation node);
  // Its process is known to have ended: no need to wait for its silence.
  void MarkDead(Incarnation node);
  bool KnownDead(Incarnation node) const;
  // This process could hear nobody for so long: it did not run, or waited for its store.
  void Excuse(int64_t us);
  // Everybody gets a whole detection time from now on, as if just heard.
  void ExcuseAll(int64_t now_us);

  // At each tick. `goes_on_here` says whether the nodes of this host could go on alone; it is asked only
  // when nobody else is heard, and then their frames count as those of others do.
  void Look(int64_t now_us, const std::function<bool()>& goes_on_here);
  bool isolated() const { return isolated_; }
  // How long everybody gets to come back when a silence that everybody shared has ended.
  int64_t GraceUs(int64_t silence_us) const;
  // How long nobody has been heard, while isolated.
  int64_t IsolatedUs(int64_t now_us) const { return isolated_ ? now_us - last_frame_us_ : 0; }

  // Silent for so long that it counts as dead.
  bool Overdue(Incarnation node, int64_t now_us) const;
  // Silent for so long that its slots may be given up with it.
  bool Lost(Incarnation node, int64_t now_us) const;
  bool Lately(Incarnation node, int64_t now_us) const;  // within half of the detection time
  bool OnThisHost(Incarnation node) const;
  int64_t SilenceUs(Incarnation node, int64_t now_us) const;

 private:
  struct Node {
    int64_t heard_us = 0;
    int64_t patience_us = 0;  // not overdue before this time
    Where where = Where::kUnknown;
    bool extended = false;  // has had its extra time in this silence
    bool dead = false;
  };
  // Those whose place is not known, after a start of this scheduler, may be anywhere.
  bool AnybodyElsewhere() const { return on_this_host_ < nodes_.size(); }
  void SetWhere(Node& node, Where where);
  void EndIsolation(int64_t now_us);
  // The node came back late: so may others that are late.
  void ExtendOthers(Incarnation node, int64_t now_us);

  const Options options_;
  std::map<Incarnation, Node> nodes_;
  size_t on_this_host_ = 0;
  int64_t last_frame_us_;  // that shows that this scheduler is not cut off
  bool isolated_ = false;
  bool given_up_ = false;  // this silence has lasted so long that it counts
};

}  // namespace cairn::scheduler
