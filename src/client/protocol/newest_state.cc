#include "client/protocol/newest_state.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "wire/state_exchange.h"

namespace cairn::client {

void NewestState::Want(StateVersion version, int64_t now_us) {
  wanted_ = std::max(wanted_, version);
  Ask(now_us);
}

// The scheduler answers a heartbeat with the state, if it has a newer one.
void NewestState::Ask(int64_t now_us) {
  if (wanted_.value <= book_.state_version || now_us < ask_us_) return;
  ask_us_ = now_us + kAskEveryUs;
  scheduler_.Heartbeat(now_us);
}

void NewestState::Compare(int64_t now_us) {
  if (now_us < compare_us_ || !scheduler_.Quiet(now_us)) return;
  compare_us_ = now_us + scheduler_.heartbeat_us();
  for (Links::Place& place : links_.all()) place.link->Tell(wire::StateAt{scheduler_.state()->version});
}

void NewestState::OnStateOf(ShardLink& link, wire::ControlMessage& message) {
  if (auto* passed = std::get_if<wire::StateMessage>(&message)) {
    passed_ = std::move(*passed);
    return;
  }
  if (const auto answer = wire::AnswerTo(std::get<wire::StateAt>(message), *scheduler_.state()))
    link.Tell(*answer);
}

std::optional<wire::StateMessage> NewestState::TakePassed() { return std::exchange(passed_, std::nullopt); }

}  // namespace cairn::client
