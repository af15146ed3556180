// The scheduler: nothing is told before it is durable, nodes have the states that were logged, no
// incarnation or table id is given twice, a barrier opens only when everybody is there, and nobody follows a
// scheduler that has been replaced.
#include <algorithm>
#include <map>
#include <string>
#include <variant>

#include "checkers.h"

namespace cairn::sim {

namespace {

class Incarnations final : public Checker {
 public:
  explicit Incarnations(Context& context) : Checker("incarnations", context) {}
  void OnControlSent(const Actor& from, const Actor*, const wire::ControlMessage& message) override {
    const auto* told = std::get_if<wire::Registered>(&message);
    if (from.role != wire::Role::kScheduler || told == nullptr) return;
    const std::string what = "incarnation " + std::to_string(told->incarnation.value);
    if (told->incarnation >= context_.durable.next_incarnation)
      Violation(what + " is told before it is logged");
    auto [uid, first] = uids_.try_emplace(told->incarnation.value, told->uid);
    if (!first && uid->second != told->uid) Violation(what + " is given to two processes");
    auto [own, new_uid] = incarnations_.try_emplace(told->uid, told->incarnation.value);
    if (!new_uid && own->second != told->incarnation.value)
      Violation("a process is given " + what + " and another");
  }

 private:
  std::map<uint64_t, uint64_t> uids_, incarnations_;
};

class ViewsDurable final : public Checker {
 public:
  explicit ViewsDurable(Context& context) : Checker("views-durable", context) {}
  void OnDurable(const wire::ClusterState& state) override {
    auto [it, added] = states_.try_emplace(state.version.value, state);
    if (!added && it->second != state)
      Violation(Words(state.version) + " is logged twice, with two contents");
    if (state.version < version_) Violation(Words(state.version) + " is logged after " + Words(version_));
    if (state.term < term_)
      Violation("term " + std::to_string(state.term.value) + " comes after a higher one");
    version_ = state.version;
    term_ = state.term;
  }
  // Whole, or put together from differences.
  void OnState(const Actor& node, const wire::ClusterState& state) override {
    auto it = states_.find(state.version.value);
    if (it != states_.end() && it->second == state) return;
    Violation(std::string(node.role == wire::Role::kServer ? "server " : "worker ") +
              std::to_string(node.index) + " has a " + Words(state.version) + " that was not logged");
  }
  void OnControlSent(const Actor& from, const Actor*, const wire::ControlMessage& message) override {
    if (from.role != wire::Role::kScheduler) return;
    if (const auto* told = std::get_if<wire::StateMessage>(&message)) {
      auto it = states_.find(told->state.version.value);
      if (it == states_.end()) return Violation(Words(told->state.version) + " is told before it is logged");
      if (it->second != told->state)
        Violation(Words(told->state.version) + " is told and logged differently");
    } else if (const auto* reply = std::get_if<wire::HeartbeatReply>(&message)) {
      if (reply->version > version_) Violation(Words(reply->version) + " is told of before it is logged");
    } else if (const auto* made = std::get_if<wire::TableReply>(&message)) {
      if (made->version > version_) Violation(Words(made->version) + " is told of before it is logged");
    }
  }

 private:
  static std::string Words(StateVersion version) { return "state version " + std::to_string(version.value); }
  std::map<uint64_t, wire::ClusterState> states_;
  StateVersion version_;
  Term term_;
};

// Where nothing goes wrong but that a scheduler is cut off, nobody is taken for dead (rule 5).
class Blame final : public Checker {
 public:
  explicit Blame(Context& context) : Checker("blame", context) {}
  void OnDurable(const wire::ClusterState& state) override {
    if (!context_.plan.only_cuts) return;
    for (const wire::ServerInfo& server : before_.servers)
      if (state.FindServer(server.index) == nullptr)
        Violation("server " + std::to_string(server.index) + " lives, and is taken for dead");
    for (const wire::WorkerInfo& worker : before_.workers) {
      const bool done = std::ranges::binary_search(state.done_ranks, worker.rank.value);
      if (state.FindWorker(worker.incarnation) == nullptr && !done)
        Violation("worker " + std::to_string(worker.rank.value) + " lives, and is taken for dead");
    }
    before_ = state;
  }

 private:
  wire::ClusterState before_;
};

// Who is dead is taken out, or the job ends, at the latest two detection times and `lost_after` after the
// last fault, the death or the beginning of this term (rule 5).
class Missed final : public Checker {
 public:
  explicit Missed(Context& context) : Checker("missed", context) {}
  // Not one that is replaced: where its twin dies before it has registered, and nobody starts another, it
  // goes on with its rank.
  void OnWorkerDied(Incarnation worker) override { dead_.try_emplace(worker.value, context_.now_us()); }
  void OnDurable(const wire::ClusterState& state) override {
    if (state.term != term_) since_us_ = context_.now_us();
    term_ = state.term;
  }
  void OnMoment() override {
    const wire::ClusterState& state = context_.durable;
    if (state.phase != wire::Phase::kRunning) return;
    for (const ShardName& name : context_.dead) dead_.try_emplace(name.incarnation, context_.now_us());
    for (const wire::ServerInfo& server : state.servers)
      Look(server.incarnation, "server " + std::to_string(server.index));
    for (const wire::WorkerInfo& worker : state.workers)
      Look(worker.incarnation, "worker " + std::to_string(worker.rank.value));
  }

 private:
  static constexpr int64_t kDetectionUs = 5'000'000;
  // The scheduler may have been asleep, or away, when everything healed; ticks and moments are not exact.
  static constexpr int64_t kSlackUs = 15'000'000;
  void Look(Incarnation incarnation, const std::string& who) {
    auto dead = dead_.find(incarnation.value);
    if (dead == dead_.end()) return;
    const int64_t from_us = std::max({dead->second, since_us_, context_.plan.heal_us});
    if (context_.now_us() - from_us > 2 * kDetectionUs + context_.plan.lost_after_us + kSlackUs)
      Violation(who + " died at " + std::to_string(dead->second) + " us, and is still on record");
  }
  std::map<uint64_t, int64_t> dead_;  // incarnation → when, or soon after
  Term term_;
  int64_t since_us_ = 0;
};

// Nobody goes back to a scheduler that has been replaced (rule 1).
class Terms final : public Checker {
 public:
  explicit Terms(Context& context) : Checker("terms", context) {}
  void OnTerm(const Actor& node, Term term) override {
    Term& highest = terms_[node.process];
    if (term < highest)
      Violation("a node has heard of term " + std::to_string(highest.value) + " and goes back to " +
                std::to_string(term.value));
    highest = std::max(highest, term);
  }

 private:
  std::map<int, Term> terms_;
};

class Tables final : public Checker {
 public:
  explicit Tables(Context& context) : Checker("tables", context) {}
  void OnDurable(const wire::ClusterState& state) override {
    for (const wire::TableInfo& table : state.tables) {
      auto [it, added] = tables_.try_emplace(table.id.value, table);
      if (!added && it->second != table) {
        Violation("table id " + std::to_string(table.id.value) + " means \"" + it->second.spec.name +
                  "\" and later another \"" + table.spec.name + "\"");
      }
      if (added && table.id.value <= highest_)
        Violation("table id " + std::to_string(table.id.value) + " is old");
      highest_ = std::max(highest_, table.id.value);
      if (gone_.contains(table.id.value))
        Violation("table id " + std::to_string(table.id.value) + " comes back");
    }
    for (const auto& [id, info] : tables_) {
      if (state.FindTable(TableId(id)) == nullptr) gone_.insert(id);
    }
  }

 private:
  std::map<uint32_t, wire::TableInfo> tables_;
  std::set<uint32_t> gone_;
  uint32_t highest_ = 0;
};

class BarrierChecker final : public Checker {
 public:
  explicit BarrierChecker(Context& context) : Checker("barrier", context) {}
  void OnBarrier(uint32_t worker, Incarnation incarnation, uint64_t count, bool passed) override {
    if (!passed) {
      entered_[incarnation.value] = count;
      return Recount();
    }
    if (count > opened_) {
      Violation("worker " + std::to_string(worker) + " passes barrier " + std::to_string(count) +
                ", and never were all live workers there");
    }
  }
  void OnDurable(const wire::ClusterState&) override { Recount(); }

 private:
  // The highest barrier that all live workers of some moment had entered.
  void Recount() {
    uint64_t lowest = UINT64_MAX;
    for (const wire::WorkerInfo& worker : context_.durable.workers) {
      if (worker.join_view.value == 0) continue;
      auto entered = entered_.find(worker.incarnation.value);
      lowest = std::min(lowest, entered != entered_.end() ? entered->second
                                                          : context_.barrier_bases[worker.incarnation.value]);
    }
    if (lowest != UINT64_MAX) opened_ = std::max(opened_, lowest);
  }
  std::map<uint64_t, uint64_t> entered_;
  uint64_t opened_ = 0;
};

}  // namespace

CheckerPtr MakeIncarnations(Context& context) { return std::make_unique<Incarnations>(context); }
CheckerPtr MakeViewsDurable(Context& context) { return std::make_unique<ViewsDurable>(context); }
CheckerPtr MakeBlame(Context& context) { return std::make_unique<Blame>(context); }
CheckerPtr MakeMissed(Context& context) { return std::make_unique<Missed>(context); }
CheckerPtr MakeTerms(Context& context) { return std::make_unique<Terms>(context); }
CheckerPtr MakeTables(Context& context) { return std::make_unique<Tables>(context); }
CheckerPtr MakeBarrier(Context& context) { return std::make_unique<BarrierChecker>(context); }

}  // namespace cairn::sim
