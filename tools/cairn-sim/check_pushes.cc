// Numbered pushes: each number decided once and in order, and the same outcome for every copy.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checkers.h"
#include "wire/data.h"

namespace cairn::sim {

namespace {

using Stream = std::pair<uint32_t, uint64_t>;  // slot, incarnation

std::string PushWords(SlotId slot, Incarnation incarnation, Seq seq) {
  return "number " + std::to_string(seq.value) + " of incarnation " + std::to_string(incarnation.value) +
         " in slot " + std::to_string(slot.value);
}

class AppliedOnce final : public Checker {
 public:
  explicit AppliedOnce(Context& context) : Checker("applied-once", context) {}

  void OnPush(const PushEvent& e) override {
    uint64_t& last = last_[{e.slot.value, e.incarnation.value}];
    const std::string what = PushWords(e.slot, e.incarnation, e.seq);
    switch (e.outcome) {
      case server::Outcome::kApplied:
      case server::Outcome::kRefused:
        if (e.seq.value != last + 1) Violation(what + " is decided after number " + std::to_string(last));
        last = e.seq.value;
        if (!IsLive(e)) Violation(what + " is decided although its worker is retired");
        if (e.outcome == server::Outcome::kApplied) CheckContent(e, what);
        break;
      case server::Outcome::kDuplicate:
        if (e.seq.value > last)
          Violation(what + " is called a duplicate after number " + std::to_string(last));
        break;
      case server::Outcome::kGap:
        if (e.seq.value <= last + 1)
          Violation(what + " is called a gap after number " + std::to_string(last));
        break;
      case server::Outcome::kRetired: break;
    }
  }
  void OnStaged(const StagedEvent& e) override {
    const RoundSaid* said = context_.facts.Said(e.incarnation, e.table, e.round);
    if (e.refused || said == nullptr || !said->parts.contains(e.slot.value)) return;
    const Part& part = said->parts.at(e.slot.value);
    if (!std::ranges::equal(part.keys, e.keys) || !std::ranges::equal(part.values, e.values))
      Violation("slot " + std::to_string(e.slot.value) + " stages another contribution of incarnation " +
                std::to_string(e.incarnation.value) + " than was sent");
  }
  void ForgetSlot(SlotId slot) override {
    std::erase_if(last_, [&](const auto& entry) { return entry.first.first == slot.value; });
  }
  void OnRetired(const ShardName& shard, Incarnation incarnation) override {
    const auto& state = context_.shard_states[shard];
    if (state && state->FindWorker(incarnation) != nullptr) {
      Violation(ToString(shard) + " retires incarnation " + std::to_string(incarnation.value) +
                ", which lives");
    }
  }

 private:
  bool IsLive(const PushEvent& e) const {
    auto it = context_.shard_states.find(e.shard);
    return it != context_.shard_states.end() && it->second->FindWorker(e.incarnation) != nullptr;
  }
  void CheckContent(const PushEvent& e, const std::string& what) {
    const Part* part = context_.facts.Push(e.incarnation, e.slot, e.seq);
    if (part == nullptr) return Violation(what + " was never sent");
    if (part->table != e.table || !std::ranges::equal(part->keys, e.keys) ||
        !std::ranges::equal(part->values, e.values) || part->hyper() != e.hyper) {
      Violation(what + " is applied with another content than was sent");
    }
  }
  std::map<Stream, uint64_t> last_;
};

class SameOutcome final : public Checker {
 public:
  explicit SameOutcome(Context& context) : Checker("same-outcome", context) {}

  void OnPush(const PushEvent& e) override {
    auto& decided = decided_[{e.slot.value, e.incarnation.value, e.seq.value}];
    if (e.outcome == server::Outcome::kApplied) {
      decided = Code::kOk;
    } else if (e.outcome == server::Outcome::kRefused) {
      if (decided && *decided != e.code)
        Violation(PushWords(e.slot, e.incarnation, e.seq) + " is refused differently");
      if (!decided) refused_[{e.slot.value, e.incarnation.value}].insert(e.seq.value);
      decided = e.code;
    } else if (e.outcome == server::Outcome::kDuplicate && decided && *decided != e.code &&
               !Forgotten(e.slot, e.incarnation, e.seq)) {
      Violation("a copy of " + PushWords(e.slot, e.incarnation, e.seq) + " gets " +
                std::string(CodeName(e.code)) + ", the original got " + std::string(CodeName(*decided)));
    }
  }

  void ForgetSlot(SlotId slot) override {
    std::erase_if(decided_, [&](const auto& entry) { return std::get<0>(entry.first) == slot.value; });
    std::erase_if(refused_, [&](const auto& entry) { return entry.first.first == slot.value; });
  }

  void OnAcknowledged(SlotId slot, Incarnation incarnation, Seq seq) override {
    const auto& decided = decided_[{slot.value, incarnation.value, seq.value}];
    if (decided && *decided != Code::kOk)
      Violation(PushWords(slot, incarnation, seq) + " is taken for applied and was refused with " +
                std::string(CodeName(*decided)));
  }

  void OnDataSent(const Actor& from, const Actor*, const wire::FrameHeader& header,
                  std::span<const std::byte> body) override {
    const bool round = header.type == wire::FrameType::kContribute || header.type == wire::FrameType::kDone;
    if (from.role == wire::Role::kWorker && round) {
      const auto push = wire::DecodePush(header, body);
      if (!push.ok()) return;
      RoundFrame& frame = round_frames_[{header.incarnation, header.request_id}];
      frame.first_phase = push->params.has(wire::kParamTwoPhase);
      frame.marks = header.type == wire::FrameType::kDone || (header.flags & wire::kFlagDone) != 0;
      frame.slots.clear();
      for (const wire::SlotEntry& e : push->entries) frame.slots.push_back(e.slot);
    } else if (from.role == wire::Role::kWorker && header.type == wire::FrameType::kPush) {
      Numbers& numbers = requests_[{header.incarnation, header.request_id}];
      if (!numbers.empty()) return;
      const auto push = wire::DecodePush(header, body);
      for (const wire::SlotEntry& e : push->entries) numbers.emplace_back(e.slot, e.number);
    } else if (from.role == wire::Role::kServer && header.type == wire::FrameType::kPushReply) {
      if (const ShardName* sender = context_.NameOf(from)) CheckReply(*sender, header, body);
    } else if (from.role == wire::Role::kServer && header.type == wire::FrameType::kRoundReply) {
      if (const ShardName* sender = context_.NameOf(from)) CheckRoundReply(*sender, header, body);
    }
  }

 private:
  using Numbers = std::vector<std::pair<uint32_t, uint64_t>>;  // slot, sequence number
  struct RoundFrame {
    std::vector<uint32_t> slots;
    bool marks = false, first_phase = false;
  };

  void CheckReply(const ShardName& sender, const wire::FrameHeader& header, std::span<const std::byte> body) {
    const auto reply = wire::DecodePushReply(header, body);
    if (!reply.ok()) return Violation("a PushReply that can't be read: " + reply.status().ToString());
    for (const auto& [slot, seq] : requests_[{header.incarnation, header.request_id}]) {
      Code told = Code::kOk;
      for (const wire::SlotEntry& e : reply->entries) {
        if (e.slot == slot) told = static_cast<Code>(e.count);
      }
      if (told == Code::kUnavailable) continue;  // a gap is no outcome
      // Whoever has been replaced tells of its own branch; early-ack knows whether it may.
      if (!context_.history.IsLine(SlotId(slot), context_.EpochLed(sender, SlotId(slot)))) continue;
      const auto& decided = decided_[{slot, header.incarnation, seq}];
      if (decided && Forgotten(SlotId(slot), Incarnation(header.incarnation), Seq(seq))) continue;
      if (!decided || *decided != told) {
        Violation(PushWords(SlotId(slot), Incarnation(header.incarnation), Seq(seq)) + " is answered " +
                  std::string(CodeName(told)) + " and was " +
                  (decided ? "decided " + std::string(CodeName(*decided)) : "not decided"));
      }
    }
  }

  // It was refused, and so many later ones were, too, that a late copy may be told otherwise: its
  // client has long been told.
  bool Forgotten(SlotId slot, Incarnation incarnation, Seq seq) const {
    auto it = refused_.find({slot.value, incarnation.value});
    if (it == refused_.end() || !it->second.contains(seq.value)) return false;
    const auto later = std::distance(it->second.upper_bound(seq.value), it->second.end());
    return later >= static_cast<ptrdiff_t>(context_.plan.max_unacked_frames);
  }

  // A slot is reported once: the same to everybody and in every copy.
  void CheckReport(const wire::FrameHeader& header, std::span<const std::byte> body) {
    const auto reply = wire::DecodeValues(header, body);
    if (!reply.ok() || reply->values.size() != reply->entries.size() * sizeof(wire::SlotReport))
      return Violation("a report that can't be read");
    for (size_t i = 0; i < reply->entries.size(); ++i) {
      const auto report = reply->values.subspan(i * sizeof(wire::SlotReport), sizeof(wire::SlotReport));
      auto [it, added] = reports_.try_emplace({header.table, reply->entries[i].slot, header.round},
                                              std::vector(report.begin(), report.end()));
      if (!added && !std::ranges::equal(it->second, report)) {
        Violation("slot " + std::to_string(reply->entries[i].slot) + " reports round " +
                  std::to_string(header.round) + " of table " + std::to_string(header.table) + " twice");
      }
    }
  }

  // What a worker is told of a slot's round, whoever tells it and in whatever frame: a copy of a frame
  // of the first phase is told the round's outcome once there is one.
  void CheckRoundReply(const ShardName& sender, const wire::FrameHeader& header,
                       std::span<const std::byte> body) {
    if ((header.flags & wire::kFlagReport) != 0) return CheckReport(header, body);
    auto asked = round_frames_.find({header.incarnation, header.request_id});
    if (asked == round_frames_.end()) return;
    std::map<uint32_t, uint32_t> told;
    for (uint32_t slot : Covered(sender, asked->second, header)) {
      // A late copy of an older round is answered without its outcome: nobody waits for that any more.
      const uint64_t open = context_.history.OpenRound(SlotId(slot), TableId(header.table)).value;
      if (open > header.round + 1 || (asked->second.first_phase && open <= header.round)) return;
      told[slot] = 0;
    }
    wire::PushReplyView refusal;
    if (wire::DecodeRoundRefusal(header, body, &refusal)) {
      for (const wire::SlotEntry& e : refusal.entries) told[e.slot] = e.count;
    }
    for (const auto& [slot, code] : told) {
      auto [it, added] = rounds_.try_emplace({header.incarnation, header.table, header.round, slot}, code);
      if (added || it->second == code) continue;
      Violation("round " + std::to_string(header.round) + " of table " + std::to_string(header.table) +
                " in slot " + std::to_string(slot) + " gets two different answers for incarnation " +
                std::to_string(header.incarnation));
    }
  }
  std::vector<uint32_t> Covered(const ShardName& sender, const RoundFrame& frame,
                                const wire::FrameHeader& header) const {
    if (!frame.marks) return frame.slots;
    std::vector<uint32_t> slots;
    auto state = context_.states.find(header.state_version);
    if (state == context_.states.end()) return slots;
    for (uint32_t s = 0; s < state->second->slots.size(); ++s) {
      const wire::SlotOwner& owner = state->second->slots[s];
      if (owner.server == sender.server && owner.thread == sender.thread && owner.heir == wire::kNoServer)
        slots.push_back(s);
    }
    return slots;
  }

  std::map<std::tuple<uint32_t, uint64_t, uint64_t>, std::optional<Code>> decided_;
  std::map<std::pair<uint32_t, uint64_t>, std::set<uint64_t>> refused_;  // numbers, by (slot, incarnation)
  std::map<std::pair<uint64_t, uint64_t>, Numbers> requests_;
  std::map<std::tuple<uint64_t, uint32_t, uint64_t, uint32_t>, uint32_t> rounds_;  // by slot: the code
  std::map<std::tuple<uint32_t, uint32_t, uint64_t>, std::vector<std::byte>> reports_;
  std::map<std::pair<uint64_t, uint64_t>, RoundFrame> round_frames_;  // by (incarnation, request)
};

}  // namespace

CheckerPtr MakeAppliedOnce(Context& context) { return std::make_unique<AppliedOnce>(context); }
CheckerPtr MakeSameOutcome(Context& context) { return std::make_unique<SameOutcome>(context); }

}  // namespace cairn::sim
