#include "client/protocol/round_turns.h"

#include <string>
#include <utility>

#include "client/protocol/table_name.h"

namespace cairn::client {

void RoundTurns::OnNewState(std::shared_ptr<const wire::ClusterState> state, const wire::WorkerInfo* self) {
  state_ = std::move(state);
  if (joined_ == nullptr && self != nullptr && self->join_view.value != 0) {
    joined_ = state_;
    self_ = *self;
  }
  std::erase_if(orders_, [&](const auto& item) {
    return item.second.idle() && state_->FindTable(item.first) == nullptr;
  });
}

Round RoundTurns::FirstRoundOf(const wire::TableInfo& table) const {
  return wire::FirstRound(*joined_, self_, table);
}

TableOrder* RoundTurns::Of(TableId table) {
  auto it = orders_.find(table);
  if (it != orders_.end()) return &it->second;
  const wire::TableInfo* info = state_ == nullptr ? nullptr : state_->FindTable(table);
  if (info == nullptr || joined_ == nullptr) return nullptr;
  return &orders_.emplace(table, TableOrder(FirstRoundOf(*info))).first->second;
}

Round RoundTurns::next_round(TableId table) const {
  auto it = orders_.find(table);
  if (it != orders_.end()) return it->second.next_round();
  const wire::TableInfo* info = state_ == nullptr ? nullptr : state_->FindTable(table);
  return info == nullptr || joined_ == nullptr ? Round{0} : FirstRoundOf(*info);
}

Status RoundTurns::CheckTurn(const Request& request) {
  using Phase = TableOrder::Phase;
  const TableOrder& order = *Of(request.table);
  const bool decides = request.kind == Request::Kind::kDecide;
  if (decides == order.may_decide() && (!request.joined || !decides)) return Status::Ok();
  const std::string name = TableName(*state_, request.table);
  const std::string round = "round " + std::to_string(order.open_round().value) + " of " + name;
  const auto wrong = [](std::string text) { return Status(Code::kInvalidArgument, std::move(text)); };
  if (!decides) {
    const bool expired = order.phase() == Phase::kContributing;
    return wrong(round + " waits for Decide" + (expired ? ": its Contribute was not finished in time" : ""));
  }
  if (!order.may_decide()) {
    switch (order.phase()) {
      case Phase::kContributing: return wrong(round + " is not summed up yet: wait for its Contribute");
      case Phase::kDeciding: return wrong(round + " is being decided already");
      default: return wrong(name + " has no round to decide: Contribute comes first");
    }
  }
  // The others would wait for the decision of one who has not joined.
  if (request.joined && !order.joined()) {
    return wrong(round + " was contributed to: this worker decides like the others, it can't join now");
  }
  return Status::Ok();
}

}  // namespace cairn::client
