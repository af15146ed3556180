// Pushes of one worker reach a slot's owner in the order of their numbers: on a connection nothing is
// left out that no owner has decided yet.
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "checkers.h"
#include "wire/data.h"

namespace cairn::sim {

namespace {

class InOrder final : public Checker {
 public:
  explicit InOrder(Context& context) : Checker("in-order", context) {}

  // A new connection: everything that is not answered comes again.
  void OnControlSent(const Actor& from, const Actor*, const wire::ControlMessage& message) override {
    const auto* hello = std::get_if<wire::Hello>(&message);
    if (from.role != wire::Role::kWorker || hello == nullptr) return;
    sent_.erase({hello->incarnation.value, hello->server_incarnation.value, hello->thread});
  }
  void OnDataSent(const Actor& from, const Actor* to, const wire::FrameHeader& header,
                  std::span<const std::byte> body) override {
    if (from.role != wire::Role::kWorker || to == nullptr || header.type != wire::FrameType::kPush) return;
    const ShardName* shard = context_.NameOf(*to);
    const auto push = wire::DecodePush(header, body);
    if (shard == nullptr || !push.ok()) return;
    auto& slots = sent_[{header.incarnation, shard->incarnation, shard->thread}];
    for (const wire::SlotEntry& e : push->entries) {
      std::set<uint64_t>& numbers = slots[e.slot];
      numbers.insert(e.number);
      if (e.number == 1 || numbers.contains(e.number - 1)) continue;
      const SlotId slot(e.slot);
      const uint64_t line = context_.history.LineEpoch(slot);
      if (context_.history.FindPush(slot, line, Incarnation(header.incarnation), Seq(e.number - 1)) != 0)
        continue;
      Violation("incarnation " + std::to_string(header.incarnation) + " sends number " +
                std::to_string(e.number) + " of slot " + std::to_string(e.slot) + " to " + ToString(*shard) +
                " before the one that comes before it");
    }
  }

 private:
  using Way = std::tuple<uint64_t, uint64_t, uint32_t>;         // worker, server, thread
  std::map<Way, std::map<uint32_t, std::set<uint64_t>>> sent_;  // by slot, on this connection
};

}  // namespace

CheckerPtr MakeInOrder(Context& context) { return std::make_unique<InOrder>(context); }

}  // namespace cairn::sim
