#include "scheduler/core/farewell.h"

#include <utility>

#include "base/check.h"
#include "base/planted.h"

namespace cairn::scheduler {
namespace {
// A node whose connection broke is back within this, or has closed it itself.
constexpr int64_t kComeBackUs = 300'000;
}  // namespace

void Farewell::Update(int64_t now_us) {
  if (finished_ || !journal_.durable().over()) return;
  if (!journal_.durable().end_told) {
    if (now_us < stay_until_us_) return;
    for (const auto& [node, connection] : connections_.nodes())
      if (Awaits(node, connection, now_us)) return;
    NoteEndTold();
  }
  finished_ = true;
}

// For whoever starts with this state next, a standby above all: it would wait for nodes that are gone.
void Farewell::NoteEndTold() {
  CAIRN_CHECK(journal_.durable().over());
  DurableState next = journal_.Next();
  next.end_told = !CAIRN_BUG(kEndToldForgotten);
  if (Status status = journal_.CommitUntold(std::move(next)); !status.ok())
    log_("everybody knows that the job is over, but that could not be noted: " + status.ToString());
}

bool Farewell::Awaits(Incarnation id, const Connections::Node& connection, int64_t now_us) const {
  const NodeRecord* node = journal_.durable().FindNode(id);
  if (node == nullptr || presence_.hearing().Lost(id, now_us)) return false;
  const bool closed = connection.conn == ConnId(0) && connection.closed_us >= 0 &&
                      now_us - connection.closed_us >= kComeBackUs;
  // One that is silent may only be cut off, as long as it has not closed its connection.
  if (presence_.silent(id) && closed) return false;
  if (node->role == wire::Role::kServer) return !confirmed_.contains(id);
  if (node->fate == NodeFate::kLeft) return !closed;
  return teller_.Holds(id) < journal_.state().version && !(closed && teller_.HasBeenSent(id));
}

}  // namespace cairn::scheduler
