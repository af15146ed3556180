// Calls and processes: every call ends with something that its caller can expect, resends and
// queues stay within bounds, and nobody leaves before the job is over.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "checkers.h"
#include "wire/data.h"
#include "wire/replica.h"

namespace cairn::sim {

namespace {

class Outcomes final : public Checker {
 public:
  explicit Outcomes(Context& context) : Checker("outcomes", context) {}

  void OnCallEnd(const CallEnd& end) override {
    if (!Expected(end)) {
      Violation(std::string(Name(end.kind)) + " of worker " + std::to_string(end.worker) + " (incarnation " +
                std::to_string(end.incarnation.value) + ") ends with " + end.status.ToString());
    }
  }

 private:
  bool Expected(const CallEnd& end) const {
    const wire::ClusterState& state = context_.durable;
    const bool failed = state.phase == wire::Phase::kFailed;
    const bool ended = failed || state.phase == wire::Phase::kEnded;
    const bool retired = end.incarnation.value != 0 && state.FindWorker(end.incarnation) == nullptr;
    switch (end.status.code()) {
      case Code::kOk: return !end.rogue;
      case Code::kNotFinite: return end.rogue;
      case Code::kHyperMismatch: return MayDiffer(end);
      case Code::kUnavailable: return end.assigns;
      case Code::kDeadlineExceeded:
        // Who has missed the end of the job hears of it from nobody: its calls end by their deadlines.
        return end.short_deadline || end.kind == CallEnd::Kind::kStart || ended;
      case Code::kNotFound:
      case Code::kAlreadyExists: return end.churned;
      case Code::kOutcomeUnknown:
        return end.short_deadline || retired || ended || end.closed || (end.rogue && end.in_parts);
      case Code::kCancelled: return end.closed;
      // Who never heard its incarnation can be declared dead as well.
      case Code::kRetired: return retired || end.kind == CallEnd::Kind::kStart;
      case Code::kJobFailed: return failed ? Names(end.status) : ended && end.kind == CallEnd::Kind::kStart;
      default: return false;
    }
  }
  // Workers differ on purpose, or because one had to decide before it had seen the report.
  bool MayDiffer(const CallEnd& end) const {
    const bool round = end.kind == CallEnd::Kind::kRound || end.kind == CallEnd::Kind::kContribute ||
                       end.kind == CallEnd::Kind::kDecide;
    return round && (context_.plan.hyper_mismatch || context_.plan.short_deadlines);
  }
  // A job fails because of a lost server, which the error names, or because nobody was left to work.
  bool Names(const Status& status) const {
    const bool nobody = status.message().find("no worker finished") != std::string::npos;
    if (nobody) return context_.left.empty();
    return context_.plan.lose_server && status.message().find("server") != std::string::npos;
  }
};

class Amplification final : public Checker {
 public:
  explicit Amplification(Context& context) : Checker("amplification", context) {}

  void OnDataSent(const Actor& from, const Actor* to, const wire::FrameHeader& header,
                  std::span<const std::byte> body) override {
    Sent& sent = sent_[header.incarnation];
    if (from.role == wire::Role::kWorker) {
      ++sent.frames;
      sent.requests.insert(header.request_id);
    } else if (header.type == wire::FrameType::kError && to != nullptr) {
      ++sent.errors;
    } else if (header.type == wire::FrameType::kPushReply) {
      const auto reply = wire::DecodePushReply(header, body);
      if (!reply.ok()) return;
      for (const wire::SlotEntry& e : reply->entries) {
        if (static_cast<Code>(e.count) == Code::kUnavailable) sent.gaps.insert({e.slot, e.number});
      }
    }
  }
  void OnControlSent(const Actor& from, const Actor*, const wire::ControlMessage& message) override {
    const auto* hello = std::get_if<wire::Hello>(&message);
    if (from.role == wire::Role::kWorker && hello != nullptr) ++sent_[hello->incarnation.value].hellos;
  }
  void OnDurable(const wire::ClusterState& state) override {
    std::set<std::pair<uint32_t, uint32_t>> get;
    for (const wire::SlotOwner& owner : state.slots)
      if (owner.since == state.version) get.emplace(owner.server, owner.thread);
    given_ += get.size();
  }
  void OnClientGone(uint32_t worker, const client::ClientCore& core, uint64_t incidents) override {
    const Sent& sent = sent_[core.incarnation().value];
    // A rewind per connection, per error and per resume point, and per shard thread that gets slots; a
    // late copy of a gap answer on a new connection may cause one more.
    const uint64_t excused = sent.hellos + sent.errors + sent.gaps.size() + given_ + incidents / 16 + 3;
    if (core.rewinds() > excused) {
      Violation("worker " + std::to_string(worker) + " rewound " + std::to_string(core.rewinds()) +
                " times, with " + std::to_string(sent.gaps.size()) + " gaps, " + std::to_string(sent.errors) +
                " errors, " + std::to_string(sent.hellos) + " connections and " + std::to_string(incidents) +
                " incidents");
    }
    const uint64_t bound = 2 * sent.requests.size() + excused * kFramesPerRewind;
    if (sent.frames > bound) {
      Violation("worker " + std::to_string(worker) + " sent " + std::to_string(sent.frames) + " frames for " +
                std::to_string(sent.requests.size()) + " requests");
    }
  }

 private:
  static constexpr uint64_t kFramesPerRewind = 64;
  struct Sent {
    uint64_t frames = 0, errors = 0, hellos = 0;
    std::set<uint64_t> requests;
    std::set<std::pair<uint32_t, uint64_t>> gaps;  // slot, resume point
  };
  std::map<uint64_t, Sent> sent_;
  uint64_t given_ = 0;  // shard threads that got slots, over all records
};

// The same between servers: every operation goes to every backup once, and again only after a fault. A
// copy takes as many pieces as the slot is large: each of these goes once too, and there is a copy for each
// time that the scheduler asks for one.
class ReplicaAmplification final : public Checker {
 public:
  explicit ReplicaAmplification(Context& context) : Checker("amplification", context) {}
  void OnOperation(const Op& op) override { ++sent_[op.shard].operations; }
  void OnDataSent(const Actor& from, const Actor* to, const wire::FrameHeader& header,
                  std::span<const std::byte> body) override {
    const ShardName* sender = context_.NameOf(from);
    if (sender == nullptr || header.type != wire::FrameType::kReplicate) return;
    Sent& sent = sent_[*sender];
    bool only_pieces = !body.empty();
    const Stream stream = to == nullptr ? Stream() : Stream(to->process, to->thread);
    wire::OpReader reader(body);
    for (wire::OpView op; reader.Next(&op);) {
      only_pieces &= op.header.kind == wire::OpKind::kChunk;
      if (op.header.kind != wire::OpKind::kBegin) continue;
      sent.begun.insert({stream, header.request_id});
      sent.asked.insert({stream, op.header.slot, op.header.epoch, op.header.a});
    }
    if (!only_pieces) {
      ++sent.frames;
      return;
    }
    ++sent.pieces;
    sent.distinct_pieces.insert({stream, header.request_id});
  }
  void OnControlSent(const Actor& from, const Actor*, const wire::ControlMessage& message) override {
    const ShardName* sender = context_.NameOf(from);
    if (sender != nullptr && std::holds_alternative<wire::ReplicaHello>(message))
      ++sent_[*sender].connections;
  }
  void AtEnd() override {
    // Commits and hashes go out by themselves, too.
    const auto seconds = static_cast<uint64_t>(context_.now_us() / 1'000'000) + 1;
    for (const auto& [shard, sent] : sent_) {
      const uint64_t again = kFramesPerConnection * sent.connections + 200;
      const uint64_t copies = 2 * sent.begun.size();  // their beginnings and ends
      if (sent.frames > 3 * context_.plan.replicas * sent.operations + 50 * seconds + copies + again)
        Report(shard, sent, "sent " + std::to_string(sent.frames) + " frames to its backups");
      if (sent.pieces > sent.distinct_pieces.size() + again)
        Report(shard, sent,
               "sent " + std::to_string(sent.pieces) + " pieces of copies, of which " +
                   std::to_string(sent.distinct_pieces.size()) + " differ,");
      if (sent.begun.size() > sent.asked.size() + sent.connections)
        Report(shard, sent,
               "began " + std::to_string(sent.begun.size()) + " copies, of " +
                   std::to_string(sent.asked.size()) + " that were asked for,");
    }
  }

 private:
  static constexpr uint64_t kFramesPerConnection = 200;
  using Stream = std::pair<int, int32_t>;  // process and thread of the backup
  struct Sent {
    uint64_t operations = 0, frames = 0, connections = 0, pieces = 0;
    std::set<std::pair<Stream, uint64_t>> distinct_pieces, begun;      // by their frames' numbers
    std::set<std::tuple<Stream, uint32_t, uint64_t, uint64_t>> asked;  // slot, epoch, since which version
  };
  void Report(const ShardName& shard, const Sent& sent, const std::string& what) {
    Violation(ToString(shard) + " " + what + " for " + std::to_string(sent.operations) +
              " operations, over " + std::to_string(sent.connections) + " connections");
  }
  std::map<ShardName, Sent> sent_;
};

class QueueBounds final : public Checker {
 public:
  explicit QueueBounds(Context& context) : Checker("queue-bounds", context) {}

  void OnDataSent(const Actor& from, const Actor*, const wire::FrameHeader& header,
                  std::span<const std::byte> body) override {
    if (from.role != wire::Role::kWorker || header.type != wire::FrameType::kPush) return;
    const auto push = wire::DecodePush(header, body);
    Unacked& unacked = unacked_[header.incarnation];
    ForEachPart(push->entries, push->keys, push->values,
                [&](const wire::SlotEntry& e, auto keys, auto values) {
                  const uint64_t bytes = keys.size_bytes() + values.size();
                  if (!unacked.parts.try_emplace({e.slot, e.number}, bytes).second) return;
                  if (e.number <= unacked.decided[e.slot]) return;
                  unacked.bytes += bytes;
                });
    // A single push may be larger than the bound: it is let through alone. A request is cut into
    // frames, so the bound is the user's plus the largest push that any worker makes.
    if (unacked.bytes > context_.plan.max_unacked_bytes + kLargestPush) {
      Violation("incarnation " + std::to_string(header.incarnation) + " has " +
                std::to_string(unacked.bytes) + " bytes unacknowledged, the bound is " +
                std::to_string(context_.plan.max_unacked_bytes));
    }
  }
  void OnEarlyBytes(const ShardName& shard, uint64_t bytes, uint64_t budget) override {
    if (bytes > budget) {
      Violation(ToString(shard) + " keeps " + std::to_string(bytes) +
                " bytes of early contributions, the bound is " + std::to_string(budget));
    }
  }
  // What a shard keeps because its backups, or its primary, are slow.
  void OnHighWater(const ShardName& shard, const server::Shard::HighWater& now) override {
    const uint64_t streams = kMostStreams * (context_.plan.most_unconfirmed_bytes + kLargestCopy);
    if (now.unconfirmed_bytes > streams || now.tail_bytes > streams) {
      Violation(ToString(shard) + " keeps " + std::to_string(now.unconfirmed_bytes) +
                " bytes for its backups and " + std::to_string(now.tail_bytes) +
                " as a backup; the bound is " + std::to_string(streams));
    }
    if (now.held_answers > kMostHeldAnswers) {
      Violation(ToString(shard) + " holds " + std::to_string(now.held_answers) + " answers, the bound is " +
                std::to_string(kMostHeldAnswers));
    }
  }
  // The client can only free what it has been told; that a shard has decided comes before it.
  void OnPush(const PushEvent& e) override {
    if (e.outcome != server::Outcome::kApplied && e.outcome != server::Outcome::kRefused) return;
    Unacked& unacked = unacked_[e.incarnation.value];
    uint64_t& decided = unacked.decided[e.slot.value];
    if (e.seq.value <= decided) return;  // once more, by a new primary
    decided = e.seq.value;
    auto part = unacked.parts.find({e.slot.value, e.seq.value});
    if (part != unacked.parts.end()) unacked.bytes -= std::min(unacked.bytes, part->second);
  }

 private:
  static constexpr uint64_t kLargestPush = 48 * 1024;
  static constexpr uint64_t kLargestCopy = 512 * 1024;
  static constexpr uint64_t kMostStreams = 16;
  static constexpr uint64_t kMostHeldAnswers = 2000;  // all workers' windows, and copies of them
  struct Unacked {
    uint64_t bytes = 0;
    std::map<std::pair<uint32_t, uint64_t>, uint64_t> parts;
    std::map<uint32_t, uint64_t> decided;
  };
  std::map<uint64_t, Unacked> unacked_;
};

class LeftEarly final : public Checker {
 public:
  explicit LeftEarly(Context& context) : Checker("left-early", context) {}

  void OnControlSent(const Actor& from, const Actor*, const wire::ControlMessage& message) override {
    const auto* heartbeat = std::get_if<wire::Heartbeat>(&message);
    if (from.role == wire::Role::kServer && heartbeat != nullptr && heartbeat->end_confirmed) {
      confirmed_.insert(heartbeat->incarnation.value);
    }
  }
  void OnExit(const Actor& actor, const Status& status) override {
    const wire::Phase phase = context_.durable.phase;
    const bool over = phase == wire::Phase::kEnded || phase == wire::Phase::kFailed;
    if (actor.role == wire::Role::kServer) {
      // One that was declared dead, or whose slots have all moved away, goes.
      const ShardName* name = context_.NameOf({.thread = 0, .process = actor.process});
      const bool listed =
          name != nullptr && std::ranges::any_of(context_.durable.servers, [&](const auto& s) {
            return s.incarnation.value == name->incarnation;
          });
      const bool excused = status.ok() || status.code() == Code::kRetired;
      if (!over && (listed || !excused)) {
        Violation("server " + std::to_string(actor.index) +
                  " leaves while the job runs: " + status.ToString());
      }
    }
    if (actor.role != wire::Role::kScheduler) return;
    if (!over) Violation("the scheduler leaves while the job runs");
    for (const wire::ServerInfo& server : context_.durable.servers) {
      const bool dead = std::ranges::any_of(
          context_.dead, [&](const ShardName& name) { return name.incarnation == server.incarnation.value; });
      const bool silent = context_.silenced.contains(server.incarnation.value);
      if (context_.plan.lose_server || dead || silent || confirmed_.contains(server.incarnation.value))
        continue;
      Violation("the scheduler leaves before server " + std::to_string(server.index));
    }
  }
  void AtEnd() override {
    const bool nobody = context_.durable.failure.find("no worker finished") != std::string::npos;
    if (context_.durable.phase == wire::Phase::kFailed && !context_.plan.lose_server &&
        (!nobody || !context_.left.empty())) {
      Violation("the job failed although no server was lost: " + context_.durable.failure);
    }
    if (!context_.durable.workers.empty() && context_.durable.phase == wire::Phase::kEnded) {
      Violation("the job ended with live workers in it");
    }
  }

 private:
  std::set<uint64_t> confirmed_;  // incarnations
};

}  // namespace

CheckerPtr MakeOutcomes(Context& context) { return std::make_unique<Outcomes>(context); }
CheckerPtr MakeAmplification(Context& context) { return std::make_unique<Amplification>(context); }
CheckerPtr MakeReplicaAmplification(Context& context) {
  return std::make_unique<ReplicaAmplification>(context);
}
CheckerPtr MakeQueueBounds(Context& context) { return std::make_unique<QueueBounds>(context); }
CheckerPtr MakeLeftEarly(Context& context) { return std::make_unique<LeftEarly>(context); }

}  // namespace cairn::sim
