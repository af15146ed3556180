#include "scheduler/core/hearing.h"

#include <algorithm>

#include "base/check.h"
#include "base/planted.h"

namespace cairn::scheduler {
namespace {
// A scheduler that has heard nobody for so many heartbeats is isolated.
constexpr int64_t kSilentHeartbeats = 2;
// A network that was down for this long may find its machines one after the other, within that time: an
// address for which nobody answered is asked for once a second, and given up for a while after three times.
constexpr int64_t kForgottenUs = 1'000'000;
constexpr int64_t kFoundAgainUs = 5'000'000;
}  // namespace

Hearing::Hearing(const Options& options, int64_t now_us) : options_(options), last_frame_us_(now_us) {}

void Hearing::Expect(Incarnation id, int64_t now_us) {
  Node& node = nodes_[id];
  node.heard_us = now_us;
  node.patience_us = now_us + options_.dead_after_us;
}

void Hearing::Hear(Incarnation id, Where where, int64_t now_us) {
  auto [it, is_new] = nodes_.try_emplace(id);
  Node& node = it->second;
  SetWhere(node, where);
  bool ends_isolation = false;
  const bool shows_connection = where != Where::kThisHost || !AnybodyElsewhere();
  if (shows_connection) {
    // Between two ticks a silence may have begun and ended.
    ends_isolation = isolated_ || now_us - last_frame_us_ >= kSilentHeartbeats * options_.heartbeat_us;
    if (ends_isolation) EndIsolation(now_us);
    last_frame_us_ = now_us;
    given_up_ = false;
  }
  const bool late = !is_new && now_us - node.heard_us >= options_.dead_after_us;
  node.heard_us = now_us;
  node.patience_us = std::max(node.patience_us, now_us + options_.dead_after_us);
  node.extended = node.dead = false;
  if (late && !ends_isolation) ExtendOthers(id, now_us);
}

void Hearing::Forget(Incarnation id) {
  auto it = nodes_.find(id);
  if (it == nodes_.end()) return;
  SetWhere(it->second, Where::kUnknown);
  nodes_.erase(it);
}

void Hearing::SetWhere(Node& node, Where where) {
  CAIRN_CHECK(node.where != Where::kThisHost || on_this_host_ > 0);
  if (node.where == Where::kThisHost) --on_this_host_;
  if (where == Where::kThisHost) ++on_this_host_;
  node.where = where;
  CAIRN_CHECK(on_this_host_ <= nodes_.size());
}

void Hearing::MarkDead(Incarnation id) {
  if (auto it = nodes_.find(id); it != nodes_.end()) it->second.dead = true;
}

bool Hearing::KnownDead(Incarnation id) const {
  auto it = nodes_.find(id);
  return it != nodes_.end() && it->second.dead;
}

void Hearing::Excuse(int64_t us) {
  last_frame_us_ += us;
  for (auto& [id, node] : nodes_) {
    node.heard_us += us;
    node.patience_us += us;
  }
}

void Hearing::ExcuseAll(int64_t now_us) {
  last_frame_us_ = now_us;
  isolated_ = false;
  for (auto& [id, node] : nodes_) {
    node.heard_us = now_us;
    node.patience_us = now_us + options_.dead_after_us;
  }
}

void Hearing::Look(int64_t now_us, const std::function<bool()>& goes_on_here) {
  const int64_t silence = now_us - last_frame_us_;
  if (nodes_.empty() || given_up_ || CAIRN_BUG(kIsolatedBlames)) {
    isolated_ = false;
    return;
  }
  if (silence < kSilentHeartbeats * options_.heartbeat_us) return;
  if (silence >= options_.lost_after_us && !CAIRN_BUG(kNeverLost)) {
    isolated_ = false;
    given_up_ = true;
    return;
  }
  isolated_ = !(AnybodyElsewhere() && goes_on_here());
}

void Hearing::EndIsolation(int64_t now_us) {
  isolated_ = false;
  if (CAIRN_BUG(kIsolatedBlames)) return;
  const int64_t grace_us = GraceUs(now_us - last_frame_us_);
  for (auto& [id, node] : nodes_) node.patience_us = std::max(node.patience_us, now_us + grace_us);
}

int64_t Hearing::GraceUs(int64_t silence_us) const {
  if (silence_us < kForgottenUs || CAIRN_BUG(kShortGrace)) return options_.dead_after_us;
  return std::max(options_.dead_after_us, kFoundAgainUs);
}

void Hearing::ExtendOthers(Incarnation id, int64_t now_us) {
  for (auto& [other, node] : nodes_) {
    if (other == id || node.extended || now_us - node.heard_us < options_.dead_after_us) continue;
    node.extended = true;
    node.patience_us = std::max(node.patience_us, now_us + options_.dead_after_us);
  }
}

bool Hearing::Overdue(Incarnation id, int64_t now_us) const {
  auto it = nodes_.find(id);
  if (it == nodes_.end()) return false;
  return it->second.dead || (!isolated_ && now_us >= it->second.patience_us);
}

bool Hearing::Lost(Incarnation id, int64_t now_us) const {
  auto it = nodes_.find(id);
  if (it == nodes_.end()) return false;
  if (CAIRN_BUG(kNeverLost)) return it->second.dead;
  return it->second.dead || now_us - it->second.heard_us >= options_.lost_after_us;
}

bool Hearing::Lately(Incarnation id, int64_t now_us) const {
  auto it = nodes_.find(id);
  return it != nodes_.end() && !it->second.dead && now_us - it->second.heard_us <= options_.dead_after_us / 2;
}

bool Hearing::OnThisHost(Incarnation id) const {
  auto it = nodes_.find(id);
  return it != nodes_.end() && it->second.where == Where::kThisHost;
}

int64_t Hearing::SilenceUs(Incarnation id, int64_t now_us) const {
  auto it = nodes_.find(id);
  return it == nodes_.end() ? 0 : now_us - it->second.heard_us;
}

}  // namespace cairn::scheduler
