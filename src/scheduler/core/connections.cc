#include "scheduler/core/connections.h"

#include <utility>

#include "base/check.h"

namespace cairn::scheduler {

void Connections::Bind(Incarnation id, ConnId conn, int64_t now_us) {
  Node& node = nodes_[id];
  if (node.conn.value >= conn.value) return;
  if (node.conn != ConnId(0)) {
    CAIRN_CHECK(bound_.erase(node.conn) == 1);
    network_.Close(node.conn);
  }
  Unbind(conn, now_us);  // a connection speaks for one node at a time
  bound_[conn] = id;
  node.closed_us = -1;
  node.conn = conn;
  listener_.OnNewConnection(id);
}

void Connections::Unbind(ConnId conn, int64_t now_us) {
  auto it = bound_.find(conn);
  if (it == bound_.end()) return;
  const auto node = nodes_.find(it->second);
  CAIRN_CHECK(node != nodes_.end() && node->second.conn == conn);
  node->second.conn = ConnId(0);
  node->second.closed_us = now_us;
  bound_.erase(it);
}

ConnId Connections::Of(Incarnation id) const {
  const auto it = nodes_.find(id);
  return it == nodes_.end() ? ConnId(0) : it->second.conn;
}

std::optional<Incarnation> Connections::SpeakerOn(ConnId conn) const {
  const auto it = bound_.find(conn);
  if (it == bound_.end()) return std::nullopt;
  return it->second;
}

void Connections::Dismiss(Incarnation id, const wire::ControlMessage& last) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return;
  const ConnId conn = it->second.conn;
  nodes_.erase(it);
  listener_.OnDismissed(id);
  if (conn == ConnId(0)) return;
  CAIRN_CHECK(bound_.erase(conn) == 1);
  Send(conn, last);
}

void Connections::Retire(Incarnation id, const std::string& why) {
  Dismiss(id, wire::Refusal{0, Code::kRetired, why + ": restart this process"});
}

void Connections::Forget(Incarnation id) {
  const auto it = nodes_.find(id);
  CAIRN_CHECK(it != nodes_.end() && it->second.conn == ConnId(0));
  nodes_.erase(it);
  listener_.OnDismissed(id);
}

void Connections::Send(ConnId conn, const wire::ControlMessage& message) {
  if (!muted_) network_.Send(conn, Encode(message));
}

void Connections::Send(ConnId conn, const wire::FramePtr& frame) {
  if (!muted_) network_.Send(conn, frame);
}

void Connections::Refuse(ConnId conn, Code code, std::string text, uint64_t request) {
  Send(conn, wire::Refusal{request, code, std::move(text)});
}

void Connections::RefuseNode(ConnId conn, Incarnation id, Code code, std::string text) {
  const auto speaker = SpeakerOn(conn);
  if (!speaker || *speaker == id) Refuse(conn, code, std::move(text));
}

void Connections::OnDisconnect(ConnId conn, int64_t now_us) {
  Unbind(conn, now_us);
  callers_.Forget(conn);
}

void Connections::Close(ConnId conn, int64_t now_us) {
  OnDisconnect(conn, now_us);
  network_.Close(conn);
}

void Connections::NoteSpoken(ConnId conn, int64_t now_us) {
  if (bound_.contains(conn)) return callers_.Forget(conn);
  callers_.Heard(conn, now_us);
  if (callers_.size() > max_callers_) CloseLateCallers(now_us);
}

void Connections::CloseLateCallers(int64_t now_us) {
  for (ConnId conn : callers_.TakeLate(now_us)) network_.Close(conn);
}

}  // namespace cairn::scheduler
