// Rounds of a sync table, in one phase or two: contributions with and without values or segments,
// unequal weights, push-pulls, assigns, a pull between rounds, and joining at the end.
#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "client/partition/partition.h"
#include "content.h"
#include "lane.h"
#include "request_maker.h"
#include "round_program.h"
#include "worker_process.h"

namespace cairn::sim {

namespace {

class RoundLane final : public Lane {
 public:
  RoundLane(WorkerProcess& worker, const TablePlan& plan, const wire::TableInfo& info)
      : Lane(worker), plan_(plan), info_(info), maker_(worker, info.spec) {
    left_ = plan.ops;
    assign_once_ = plan.assign_once;
  }

  // A round that is still open would keep the worker from leaving, and others may wait for it then.
  bool share_done() const override { return left_ == 0 && !may_be_open_ && (!plan_.joins || all_joined_); }

  void Step() override {
    if (under_way_ > 0 || !worker_.core().fatal().ok()) return;
    if (worker_.leaving() || share_done()) worker_.OnLaneProgress();
    if (worker_.leaving()) return;
    ++under_way_;
    worker_.Later(random_.Between(0, worker_.world().plan().think_us), [this] {
      --under_way_;
      if (worker_.leaving()) return worker_.OnLaneProgress();
      if (std::exchange(assign_once_, false)) AssignOnce();
      if (random_.Chance(plan_.assign_rows)) AssignRows();
      DoRound();
      // A trainer that does not wait: the client holds the second one back.
      if (left_ > 1 && random_.Chance(0.3)) DoRound();
    });
  }
  void OneMore() override { DoRound(); }
  std::string WhatItDoes() const override {
    return plan_.spec.name + " " + std::to_string(left_) + " rounds left, next is " +
           std::to_string(worker_.core().next_round(info_.id).value) + (busy() ? ", under way" : "");
  }

 private:
  using Phase = client::RoundPhase;

  // What a round is, from its first call to its last.
  struct Turn {
    Round round;
    RoundProgram program;
    bool joined = false;
    bool values = false;
    bool rogue = false;  // its contribution is refused somewhere
  };

  const Plan& plan() const { return worker_.world().plan(); }
  std::shared_ptr<CallData> NewCall() const {
    auto data = std::make_shared<CallData>();
    data->info = info_;
    return data;
  }

  void DoRound() {
    Turn turn;
    turn.round = worker_.core().next_round(info_.id);
    turn.program = ProgramOf(plan_, info_, turn.round);
    turn.joined = plan_.joins && left_ == 0;
    turn.values = !turn.joined && left_ > 0 && random_.Chance(0.85);
    const bool assigns = turn.program.op != PushOp::kUpdate;
    if (assigns) turn.values = !turn.joined && (IsFirst() || random_.Chance(0.1));
    // Who has joined may take part in both phases or wait for the end of the round.
    bool contributes = turn.program.two_phase && !(turn.joined && random_.Chance(0.5));
    if (!turn.joined && !assigns && Differs(0.02)) contributes = !contributes;
    Contribute(turn, contributes ? Phase::kContribute : Phase::kWhole);
  }

  // It has the lowest rank that it knows of.
  bool IsFirst() const {
    for (const wire::WorkerInfo& worker : worker_.core().state()->workers) {
      if (worker.join_view.value != 0) return worker.incarnation == worker_.core().incarnation();
    }
    return false;
  }

  void Contribute(Turn turn, Phase phase) {
    auto data = NewCall();
    const auto state = worker_.core().state();
    client::PartitionInput input{.state = state.get(), .table = &data->info};
    CallEnd end{.kind = phase == Phase::kWhole ? CallEnd::Kind::kRound : CallEnd::Kind::kContribute,
                .table = info_.id};
    if (turn.values) {
      FillPush(*data, plan_, worker_.core().incarnation().value * 100'000 + ++pushed_, random_);
      if (maker_.chooses() && turn.program.op == PushOp::kUpdate) OnGrid(*data);
      FillMask(*data, plan_, random_);
      input.keys = data->keys;
      input.values = InPieces(data->values, *data, plan_, random_);
      input.mask = data->mask;
      if (random_.Chance(plan_.value_scales)) input.value_scale = 0.25;
    }
    input.phase = phase;
    input.joined = turn.joined;
    input.not_finite = phase == Phase::kContribute && !turn.joined && random_.Chance(plan_.not_finite);
    input.weight = Weight(turn);
    SetProgram(turn, &input, &end);
    if (phase == Phase::kWhole) PullAfter(*data, turn.values, &input);
    auto request = maker_.Round(input, random_);
    if (!request.ok()) return;
    const bool floats = info_.spec.element == ElementType::kFloat32;
    const bool sends = turn.values && !input.not_finite && CanPoke(*data, input);
    if (plan().rogue && sends && floats && random_.Chance(0.1)) {
      turn.rogue = PokeNan(*request, random_) && info_.spec.non_finite == NonFinitePolicy::kReject;
    }
    // A part that is refused is told of at the end of the round.
    end.rogue = turn.rogue && phase == Phase::kWhole;
    // One that is held back behind another would not be sent at all.
    const bool alone = under_way_ == 0 && !may_be_open_ && !was_late_;
    end.short_deadline = alone && left_ > 0 && plan().short_deadlines && random_.Chance(0.1);
    Submit(std::move(*request), std::move(end), data, [this, turn, phase, data](const Status& status) {
      if (status.ok()) was_late_ = false;
      if (phase == Phase::kWhole) return EndTurn(status, data->told);
      const bool late = status.code() == Code::kDeadlineExceeded;
      was_late_ |= late;
      // The client has decided what becomes of a round that it could not contribute to.
      if (!status.ok() && !late) return EndTurn(status, {});
      if (random_.Chance(0.15)) Pull();
      const RoundDecision decision =
          late ? RoundDecision{.skip = true} : DecisionOf(plan_, turn.round, data->told);
      if (random_.Chance(0.5)) return Decide(turn, decision);
      ++under_way_;
      worker_.Later(random_.Between(0, 4 * plan().think_us), [this, turn, decision] {
        --under_way_;
        Decide(turn, decision);
      });
    });
  }

  void Decide(const Turn& turn, const RoundDecision& decision) {
    auto data = NewCall();
    const auto state = worker_.core().state();
    client::PartitionInput input{.state = state.get(), .table = &data->info};
    CallEnd end{.kind = CallEnd::Kind::kDecide, .table = info_.id, .rogue = turn.rogue};
    input.phase = Phase::kDecide;
    input.joined = turn.joined;
    input.skip = decision.skip && !turn.joined;
    input.scale = decision.skip || turn.joined ? 1.0 : decision.scale;
    end.short_deadline = left_ > 0 && plan().short_deadlines && random_.Chance(0.05);
    SetProgram(turn, &input, &end);
    input.hyper.lr *= 0.5;  // those of the decision count
    PullAfter(*data, turn.values, &input);
    auto request = client::PrepareRound(input, worker_.world().pool());
    if (!request.ok()) {
      worker_.world().context().report("outcomes", "PrepareRound: " + request.status().ToString());
      return;
    }
    Submit(std::move(*request), std::move(end), data,
           [this, data](const Status& status) { EndTurn(status, data->told); });
  }

  // All that is sent lies in the call's own memory, and all of it counts.
  static bool CanPoke(const CallData& data, const client::PartitionInput& input) {
    const auto& pieces = input.values.pieces();
    return data.mask.empty() && pieces.size() == 1 && pieces[0].data() != nullptr;
  }
  double Weight(const Turn& turn) {
    if (turn.program.op != PushOp::kUpdate) return turn.values ? 1 : 0;
    if (random_.Chance(0.03)) return 0;
    return random_.Chance(0.5) ? 1 : 0.25 * static_cast<double>(uint64_t{1} << random_.Below(5));
  }

  // Whether this worker does something else than the others. The rate is that of five workers: among 27
  // of them nearly every round would fail, and nobody could leave after a good one.
  bool Differs(double rate) {
    return plan().hyper_mismatch && random_.Chance(rate * std::min(1.0, 5.0 / plan().workers));
  }

  void SetProgram(const Turn& turn, client::PartitionInput* input, CallEnd* end) {
    end->round = turn.round;
    end->joined = turn.joined;
    end->assigns = turn.program.op != PushOp::kUpdate;
    input->hyper = turn.program.hyper;
    input->op = turn.program.op;
    input->column = turn.program.column;
    if (Differs(0.05)) {
      input->hyper.lr *= 2;
      end->odd_hyper = true;
    }
    if (!end->assigns && Differs(0.02)) {
      input->weighted = true;
      end->odd_hyper = true;
    }
  }

  // Sparse tables: only where the call has keys.
  void PullAfter(CallData& data, bool values, client::PartitionInput* input) {
    const bool dense = info_.spec.kind == TableKind::kDense;
    const bool can = dense || (values && input->phase == Phase::kWhole);
    if (!can || !random_.Chance(0.5)) return;
    const size_t elements = dense ? info_.spec.size : data.keys.size() * info_.spec.dim;
    data.out.resize(elements * ElementBytes(info_.spec));
    input->pull_after = true;
    input->out = std::span(data.out);
  }

  void EndTurn(const Status& status, const RoundInfo& told) {
    may_be_open_ = !status.ok();
    if (left_ > 0) --left_;
    all_joined_ |= status.ok() && told.all_joined;
    if (random_.Chance(0.3)) Pull();
  }

  // A numbered push to a sync table: the state of an optimizer that goes on from a checkpoint.
  void AssignOnce() {
    auto data = NewCall();
    FillPush(*data, plan_, worker_.core().incarnation().value * 100'000 + ++pushed_, random_);
    const auto state = worker_.core().state();
    client::PartitionInput input{.state = state.get(), .table = &data->info};
    input.values = std::span(data->values);
    input.op = PushOp::kAssignOnce;
    input.column = random_.Chance(0.2) ? 0 : kStepColumn;
    if (StateColumns(info_.spec.optimizer, info_.spec.optimizer_flags) > 0 && random_.Chance(0.5))
      input.column = 1;
    SubmitPush(input, std::move(data));
  }

  // Between rounds for this worker, at any time for the others.
  void AssignRows() {
    auto data = NewCall();
    FillPush(*data, plan_, worker_.core().incarnation().value * 100'000 + ++pushed_, random_);
    const auto state = worker_.core().state();
    client::PartitionInput input{.state = state.get(), .table = &data->info, .keys = data->keys};
    input.values = std::span(data->values);
    input.op = random_.Chance(0.5) ? PushOp::kAssign : PushOp::kAssignOnce;
    input.column = AssignedColumn(info_.spec, pushed_);
    SubmitPush(input, std::move(data));
  }

  void SubmitPush(const client::PartitionInput& input, std::shared_ptr<CallData> data) {
    auto request = client::PreparePush(input, worker_.world().pool());
    if (!request.ok()) {
      worker_.world().context().report("outcomes", "PreparePush: " + request.status().ToString());
      return;
    }
    Submit(std::move(*request), {.kind = CallEnd::Kind::kPush, .table = info_.id}, std::move(data),
           [](const Status&) {});
  }

  void Pull() {
    auto data = NewCall();
    FillPull(*data, plan_, random_);
    const auto state = worker_.core().state();
    client::PartitionInput input{
        .state = state.get(), .table = &data->info, .keys = data->keys, .out = std::span(data->out)};
    input.pull_column = PullColumn(info_.spec, random_);
    const bool keys = info_.spec.kind == TableKind::kSparse && random_.Chance(0.1);
    if (keys) {
      input.keys = {};
      input.out = {};
      input.pull_column = 0;
      data->keys.clear();
      data->out.clear();
    }
    auto request = keys ? client::PrepareKeys(input, &data->found, worker_.world().pool())
                        : client::PreparePull(input, worker_.world().pool());
    if (!request.ok()) {
      worker_.world().context().report("outcomes", "PreparePull: " + request.status().ToString());
      return;
    }
    Submit(std::move(*request),
           {.kind = CallEnd::Kind::kPull, .table = info_.id, .column = input.pull_column}, std::move(data),
           [](const Status&) {});
  }

  void Submit(client::Request request, CallEnd end, std::shared_ptr<CallData> data,
              std::function<void(const Status&)> then) {
    ++under_way_;
    request.deadline_us = worker_.Deadline();
    if (end.short_deadline) request.deadline_us = worker_.world().now_us() + random_.Between(1000, 1'000'000);
    worker_.Submit(std::move(request), std::move(end), std::move(data),
                   [this, then = std::move(then)](const Status& status) {
                     --under_way_;
                     then(status);
                     worker_.OnLaneProgress();
                     Step();
                   });
  }

  const TablePlan plan_;
  const wire::TableInfo info_;
  RequestMaker maker_;
  uint64_t pushed_ = 0;
  bool assign_once_ = false;  // still to do
  bool all_joined_ = false;
  bool may_be_open_ = false;  // the last round: it ended at its deadline, or the client gives it up
  bool was_late_ = false;     // a Contribute: its answers may still be awaited after its Decide has ended
};

}  // namespace

std::unique_ptr<Lane> MakeRoundLane(WorkerProcess& worker, const TablePlan& plan,
                                    const wire::TableInfo& info) {
  return std::make_unique<RoundLane>(worker, plan, info);
}

}  // namespace cairn::sim
