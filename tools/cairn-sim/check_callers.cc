// What a caller is told of its pushes is what became of them: a push that ends well has gone whole and once,
// one that is refused has not gone at all, and a push-pull gives values that its push has gone into. And what
// all callers have under way keeps to the client's bound. Where integers are pushed, each push is known by
// its content.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkers.h"
#include "wire/data.h"

namespace cairn::sim {

namespace {

uint64_t DigestOf(std::span<const RowKey> keys, std::span<const std::byte> values) {
  uint64_t digest = Mix64(keys.size(), values.size());
  for (RowKey key : keys) digest = Mix64(digest, key);
  for (size_t at = 0; at + 8 <= values.size(); at += 8) {
    uint64_t value = 0;
    std::memcpy(&value, values.data() + at, 8);
    digest = Mix64(digest, value);
  }
  return digest;
}

// Which numbers the slots' parts of pushes have got on the wire.
class PushChecker : public Checker {
 public:
  using Checker::Checker;

  void OnPrepared(const PreparedEvent& e) override {
    if (e.frames == nullptr || e.call == 0 || !Judged(e.given.table->id)) return;
    Given& given = given_[e.call];
    given = {e.incarnation.value, e.given.table->id.value, {}};
    for (const auto& [header, body] : *e.frames) {
      const auto push = wire::DecodePush(header, body);
      if (header.type != wire::FrameType::kPush || !push.ok()) continue;
      ForEachPart(push->entries, push->keys, push->values, [&](const auto& entry, auto keys, auto values) {
        const uint64_t digest = DigestOf(keys, values);
        given.parts.emplace_back(entry.slot, digest);
        ++made_[{given.incarnation, given.table, entry.slot, digest}];
      });
    }
  }
  void OnDataSent(const Actor& from, const Actor*, const wire::FrameHeader& header,
                  std::span<const std::byte> body) override {
    if (from.role != wire::Role::kWorker || header.type != wire::FrameType::kPush) return;
    const auto push = wire::DecodePush(header, body);
    if (!push.ok() || !Judged(TableId(header.table))) return;
    ForEachPart(push->entries, push->keys, push->values, [&](const auto& entry, auto keys, auto values) {
      sent_[{header.incarnation, header.table, entry.slot, DigestOf(keys, values)}].insert(entry.number);
    });
  }

 protected:
  struct Given {
    uint64_t incarnation = 0;
    uint32_t table = 0;
    std::vector<std::pair<uint32_t, uint64_t>> parts;  // slot, digest
  };

  const Given* Find(const CallEnd& end) const {
    const auto it = given_.find(end.call);
    return end.call == 0 || it == given_.end() ? nullptr : &it->second;
  }
  void Forget(const CallEnd& end) { given_.erase(end.call); }
  const std::set<uint64_t>& NumbersOf(const Given& given, uint32_t slot, uint64_t digest) const {
    static const std::set<uint64_t> kNone;
    const auto it = sent_.find({given.incarnation, given.table, slot, digest});
    return it == sent_.end() ? kNone : it->second;
  }
  // How many parts of pushes were made with this content. A part of one element may be like another one: then
  // nobody can tell which of them has gone.
  size_t MadeOf(const Given& given, uint32_t slot, uint64_t digest) const {
    const auto it = made_.find({given.incarnation, given.table, slot, digest});
    return it == made_.end() ? 0 : it->second;
  }
  static std::string Words(uint64_t incarnation, uint32_t table, uint32_t slot) {
    return "incarnation " + std::to_string(incarnation) + ": the part for slot " + std::to_string(slot) +
           " of a push to table " + std::to_string(table);
  }

 private:
  bool Judged(TableId id) const {
    const auto table = context_.tables.find(id.value);
    return table != context_.tables.end() && table->second.spec.element == ElementType::kInt64 &&
           table->second.spec.mode == Mode::kAsync;
  }

  std::map<uint64_t, Given> given_;                                    // by call
  using Content = std::tuple<uint64_t, uint32_t, uint32_t, uint64_t>;  // incarnation, table, slot, digest
  std::map<Content, std::set<uint64_t>> sent_;
  std::map<Content, size_t> made_;
};

class WholePush final : public PushChecker {
 public:
  explicit WholePush(Context& context) : PushChecker("whole-push", context) {}

  void OnAcknowledged(SlotId slot, Incarnation incarnation, Seq seq) override {
    acknowledged_.insert({incarnation.value, slot.value, seq.value});
  }
  void OnCallEnd(const CallEnd& end) override {
    const Given* given = Find(end);
    if (given == nullptr) return;
    const bool unknown = end.status.code() == Code::kOutcomeUnknown;
    if (end.status.ok()) {
      CheckWhole(*given);
    } else if (end.kind == CallEnd::Kind::kPush) {
      // What its client has still to send tells only later.
      (unknown ? unknown_ : refused_).push_back(*given);
    }
    Forget(end);
  }
  void AtEnd() override {
    for (const Given& given : refused_)
      if (const size_t gone = Gone(given); gone > 0 && Unmistakable(given))
        Violation(Words(given.incarnation, given.table, given.parts[0].first) +
                  ": its caller was told that it was refused, and " + std::to_string(gone) + " of " +
                  std::to_string(given.parts.size()) + " parts were sent");
    for (const Given& given : unknown_) {
      if (!context_.left.contains(given.incarnation)) continue;  // it could not send the rest
      if (const size_t gone = Gone(given); gone != given.parts.size() && Unmistakable(given))
        Violation(Words(given.incarnation, given.table, given.parts[0].first) + ": " + std::to_string(gone) +
                  " of " + std::to_string(given.parts.size()) + " parts were sent, and its client lived on");
    }
  }

 private:
  void CheckWhole(const Given& given) {
    for (const auto& [slot, digest] : given.parts) {
      const std::set<uint64_t>& numbers = NumbersOf(given, slot, digest);
      const auto told = [&, slot = slot](const std::string& what) {
        Violation(Words(given.incarnation, given.table, slot) + " has ended well and " + what);
      };
      const size_t made = MadeOf(given, slot, digest);
      if (numbers.empty() || numbers.size() > made)
        return told("was sent " + std::to_string(numbers.size()) + " times");
      const auto acknowledged = [&, slot = slot](uint64_t number) {
        return acknowledged_.contains({given.incarnation, slot, number});
      };
      if (std::ranges::none_of(numbers, acknowledged)) return told("was not acknowledged");
    }
  }
  size_t Gone(const Given& given) const {
    return static_cast<size_t>(std::ranges::count_if(
        given.parts, [&](const auto& part) { return !NumbersOf(given, part.first, part.second).empty(); }));
  }
  bool Unmistakable(const Given& given) const {
    return std::ranges::all_of(given.parts,
                               [&](const auto& part) { return MadeOf(given, part.first, part.second) == 1; });
  }

  std::set<std::tuple<uint64_t, uint32_t, uint64_t>> acknowledged_;  // incarnation, slot, number
  std::vector<Given> refused_, unknown_;
};

class OwnPush final : public PushChecker {
 public:
  explicit OwnPush(Context& context) : PushChecker("own-push", context) {}

  void OnCallEnd(const CallEnd& end) override {
    const Given* given = Find(end);
    if (given == nullptr) return;
    // The pull relies on a connection that keeps the order, as TCP does.
    if (end.kind == CallEnd::Kind::kPushPull && end.status.ok() && !end.overtaken) {
      for (const auto& [slot, digest] : given->parts) Check(end, *given, slot, digest);
    }
    Forget(end);
  }

 private:
  void Check(const CallEnd& end, const Given& given, uint32_t slot, uint64_t digest) {
    if (MadeOf(given, slot, digest) != 1) return;
    const std::set<uint64_t>& numbers = NumbersOf(given, slot, digest);
    const auto& positions = context_.positions[{given.incarnation, slot}];
    if (numbers.empty() || *numbers.begin() > positions.size()) return;  // whole-push
    const Position pushed = positions[*numbers.begin() - 1];
    const auto read = end.read->find(slot);
    if (read != end.read->end() && read->second.index() >= pushed.index()) return;
    Violation(Words(given.incarnation, given.table, slot) + ", number " + std::to_string(*numbers.begin()) +
              " at index " + std::to_string(pushed.index()) +
              ", is not in the values that came with it, of " +
              (read == end.read->end() ? "nowhere" : "index " + std::to_string(read->second.index())));
  }
};

class Room final : public Checker {
 public:
  explicit Room(Context& context) : Checker("room", context) {}

  void OnRoom(const RoomEvent& e) override {
    uint64_t& under_way = under_way_[e.process];
    if (!e.taken) {
      under_way -= e.bytes;
      return;
    }
    if (under_way > 0 && under_way + e.bytes > context_.plan.most_reserved_bytes)
      Violation("a push of " + std::to_string(e.bytes) + " bytes is let through beside " +
                std::to_string(under_way) + ", the client's bound is " +
                std::to_string(context_.plan.most_reserved_bytes));
    under_way += e.bytes;
  }

 private:
  std::map<int, uint64_t> under_way_;  // by process
};

}  // namespace

CheckerPtr MakeWholePush(Context& context) { return std::make_unique<WholePush>(context); }
CheckerPtr MakeOwnPush(Context& context) { return std::make_unique<OwnPush>(context); }
CheckerPtr MakeRoom(Context& context) { return std::make_unique<Room>(context); }

}  // namespace cairn::sim
