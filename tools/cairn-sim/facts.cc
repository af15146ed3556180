#include "facts.h"

#include <algorithm>
#include <cstring>

namespace cairn::sim {

namespace {

Part MakePart(const wire::FrameHeader& header, const wire::PushView& push, std::span<const uint64_t> keys,
              std::span<const std::byte> values) {
  Part part;
  part.table = TableId(header.table);
  part.keys.assign(keys.begin(), keys.end());
  part.values.assign(values.begin(), values.end());
  part.mask.assign(push.mask.begin(), push.mask.end());
  part.params = push.params;
  part.request = header.request_id;
  return part;
}

// But for the lengths of what follows, which differ between the frames of a request.
bool SameParams(const wire::PushParams& a, const wire::PushParams& b) {
  return a.weight == b.weight && a.value_scale == b.value_scale && a.scale == b.scale &&
         a.hyper() == b.hyper() && a.flags == b.flags && a.op == b.op && a.column == b.column;
}

// What of it is not as it was; empty if all is.
std::string Difference(const Part& part, const wire::FrameHeader& header, const wire::PushView& push,
                       std::span<const uint64_t> keys, std::span<const std::byte> values) {
  if (part.table.value != header.table) return "table";
  if (!std::ranges::equal(part.keys, keys)) return "keys";
  if (part.values.size() != values.size()) return "number of values";
  if (!std::ranges::equal(part.values, values)) {
    const auto at = std::ranges::mismatch(part.values, values).in1 - part.values.begin();
    return "values from byte " + std::to_string(at) + " of " + std::to_string(values.size());
  }
  if (!std::ranges::equal(part.mask, push.mask)) return "mask";
  return SameParams(part.params, push.params) ? "" : "parameters";
}

}  // namespace

uint64_t Facts::OnSent(const wire::FrameHeader& header, const wire::PushView& push) {
  if (header.type == wire::FrameType::kPush) return OnNumbered(header, push);
  OnRound(header, push);
  return 0;
}

uint64_t Facts::OnNumbered(const wire::FrameHeader& header, const wire::PushView& push) {
  uint64_t fresh = 0;
  ForEachPart(push.entries, push.keys, push.values, [&](const wire::SlotEntry& e, auto keys, auto values) {
    Numbered& numbered = pushes_[{header.incarnation, e.slot}];
    auto [it, added] = numbered.try_emplace(e.number);
    if (added) {
      if (e.number != numbered.size()) {
        complain_("worker incarnation " + std::to_string(header.incarnation) + " numbers slot " +
                  std::to_string(e.slot) + " with " + std::to_string(e.number) + " after " +
                  std::to_string(numbered.size() - 1) + " pushes");
      }
      it->second = MakePart(header, push, keys, values);
      fresh += values.size();
    } else if (const auto what = Difference(it->second, header, push, keys, values); !what.empty()) {
      complain_("worker incarnation " + std::to_string(header.incarnation) +
                " sends another push as number " + std::to_string(e.number) + " of slot " +
                std::to_string(e.slot) + ": other " + what);
    }
  });
  return fresh;
}

void Facts::OnRound(const wire::FrameHeader& header, const wire::PushView& push) {
  RoundSaid& said = rounds_[{header.incarnation, header.table, header.round}];
  const std::string who = "worker incarnation " + std::to_string(header.incarnation) + " in round " +
                          std::to_string(header.round) + " of table " + std::to_string(header.table);
  if (push.params.has(wire::kParamDecide)) return OnDecision(said, push.params, who);
  const bool joined = push.params.has(wire::kParamJoined);
  if (said.done_said || !said.parts.empty()) {
    if (said.joined != joined) complain_(who + " changes whether it has joined");
    if (!joined && !SameParams(said.params, push.params)) complain_(who + " changes its parameters");
  }
  said.joined = joined;
  said.params = push.params;
  if (header.type == wire::FrameType::kDone || (header.flags & wire::kFlagDone) != 0) {
    if (said.done_said && !std::ranges::equal(said.bitmap, push.done_bitmap))
      complain_(who + " changes its mark");
    said.bitmap.assign(push.done_bitmap.begin(), push.done_bitmap.end());
    said.done_said = true;
  }
  if (header.type != wire::FrameType::kContribute) return;
  ForEachPart(push.entries, push.keys, push.values, [&](const wire::SlotEntry& e, auto keys, auto values) {
    auto [it, added] = said.parts.try_emplace(e.slot);
    if (added) {
      it->second = MakePart(header, push, keys, values);
    } else if (const auto what = Difference(it->second, header, push, keys, values); !what.empty()) {
      complain_(who + " changes its contribution to slot " + std::to_string(e.slot) + ": other " + what);
    }
  });
}

void Facts::OnDecision(RoundSaid& said, const wire::PushParams& params, const std::string& who) {
  const DecisionSaid decision{params.has(wire::kParamSkip), params.scale, params.hyper()};
  if (!said.done_said) complain_(who + " decides without having contributed");
  if (said.decision && !(*said.decision == decision)) complain_(who + " changes its decision");
  said.decision = decision;
}

const Part* Facts::Push(Incarnation incarnation, SlotId slot, Seq seq) const {
  auto it = pushes_.find({incarnation.value, slot.value});
  if (it == pushes_.end()) return nullptr;
  auto part = it->second.find(seq.value);
  return part == it->second.end() ? nullptr : &part->second;
}

const RoundSaid* Facts::Said(Incarnation incarnation, TableId table, Round round) const {
  auto it = rounds_.find({incarnation.value, table.value, round.value});
  return it == rounds_.end() ? nullptr : &it->second;
}

}  // namespace cairn::sim
