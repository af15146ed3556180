// Rounds of a sync table: contributions with and without values, unequal weights, push-pulls,
// and a pull between rounds.
#include <memory>
#include <utility>

#include "client/partition.h"
#include "content.h"
#include "lane.h"
#include "worker_process.h"

namespace cairn::sim {

namespace {

// The same for every worker, and another one every few rounds.
Hyper HyperOf(const wire::TableInfo& info, Round round) {
  return {.lr = 0.125f * static_cast<float>(1 + round.value / 3 % 4),
          .weight_decay = info.id.value % 2 == 0 ? 0.0f : 0.25f};
}

class RoundLane final : public Lane {
 public:
  RoundLane(WorkerProcess& worker, const TablePlan& plan, const wire::TableInfo& info)
      : Lane(worker), plan_(plan), info_(info) {
    left_ = plan.ops;
  }

  void Step() override {
    if (under_way_ > 0 || !worker_.core().fatal().ok()) return;
    if (worker_.leaving()) return worker_.OnLaneProgress();
    ++under_way_;
    worker_.Later(random_.Between(0, worker_.world().plan().think_us), [this] {
      --under_way_;
      if (worker_.leaving()) return worker_.OnLaneProgress();
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
  void DoRound() {
    auto data = std::make_shared<CallData>();
    data->info = info_;
    const Plan& plan = worker_.world().plan();
    const bool values = left_ > 0 && random_.Chance(0.85);
    if (values) FillPush(*data, plan_, worker_.core().incarnation().value * 100'000 + ++pushed_, random_);
    const auto state = worker_.core().state();
    client::PartitionInput input{
        .state = state.get(), .table = &data->info, .keys = data->keys, .values = data->values};
    input.hyper = HyperOf(info_, worker_.core().next_round(info_.id));
    CallEnd end{.kind = CallEnd::Kind::kRound, .table = info_.id};
    if (plan.hyper_mismatch && random_.Chance(0.05)) {
      input.hyper.lr *= 2;
      end.odd_hyper = true;
    }
    input.weight = 0.25 * static_cast<double>(uint64_t{1} << random_.Below(5));
    if (random_.Chance(0.5)) input.weight = 1;
    if (random_.Chance(0.03)) input.weight = 0;
    if (values && random_.Chance(0.5)) {
      input.pull_after = true;
      const size_t rows = info_.spec.kind == TableKind::kDense ? 1 : data->keys.size();
      const size_t row = info_.spec.kind == TableKind::kDense ? info_.spec.size : info_.spec.dim;
      data->out.resize(rows * row * ElementBytes(info_.spec));
      input.out = data->out;
    }
    auto request = client::PrepareRound(input, worker_.world().pool());
    if (!request.ok()) {
      worker_.world().context().report("outcomes", "PrepareRound: " + request.status().ToString());
      return;
    }
    CutFrames(*request, info_.spec, plan.split, random_, worker_.world().pool());
    if (plan.rogue && values && info_.spec.element == ElementType::kFloat32 && random_.Chance(0.1)) {
      end.rogue = PokeNan(*request, random_) && info_.spec.non_finite == NonFinitePolicy::kReject;
    }
    Submit(std::move(*request), std::move(end), std::move(data), [this] {
      if (left_ > 0) --left_;
      if (random_.Chance(0.3)) Pull();
    });
  }

  void Pull() {
    auto data = std::make_shared<CallData>();
    data->info = info_;
    FillPull(*data, plan_, random_);
    const auto state = worker_.core().state();
    const client::PartitionInput input{
        .state = state.get(), .table = &data->info, .keys = data->keys, .out = data->out};
    auto request = client::PreparePull(input, worker_.world().pool());
    if (!request.ok()) {
      worker_.world().context().report("outcomes", "PreparePull: " + request.status().ToString());
      return;
    }
    Submit(std::move(*request), {.kind = CallEnd::Kind::kPull, .table = info_.id}, std::move(data), [] {});
  }

  void Submit(client::Request request, CallEnd end, std::shared_ptr<CallData> data,
              std::function<void()> then) {
    ++under_way_;
    request.deadline_us = worker_.Deadline();
    worker_.Submit(std::move(request), std::move(end), std::move(data),
                   [this, then = std::move(then)](const Status&) {
                     --under_way_;
                     then();
                     worker_.OnLaneProgress();
                     Step();
                   });
  }

  const TablePlan plan_;
  const wire::TableInfo info_;
  uint64_t pushed_ = 0;
};

}  // namespace

std::unique_ptr<Lane> MakeRoundLane(WorkerProcess& worker, const TablePlan& plan,
                                    const wire::TableInfo& info) {
  return std::make_unique<RoundLane>(worker, plan, info);
}

}  // namespace cairn::sim
