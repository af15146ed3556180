// Pushes to and pulls from an async table, several in flight; some tables begin with an assign.
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

Lane::Lane(WorkerProcess& worker) : worker_(worker), random_(worker.random().Next()) {}

namespace {

class AsyncLane final : public Lane {
 public:
  AsyncLane(WorkerProcess& worker, const TablePlan& plan, const wire::TableInfo& info)
      : Lane(worker), plan_(plan), info_(info), maker_(worker, info.spec) {
    left_ = plan.ops;
  }

  void Step() override {
    if (!begun_) return Begin();
    while (left_ > 0 && under_way_ < plan_.window && worker_.core().fatal().ok()) {
      // A caller waits at the bound; now and then one does not look.
      if (!worker_.core().has_room() && under_way_ > 0 && !random_.Chance(0.2)) break;
      if (random_.Chance(0.25)) Pull(false, [](const Status&) {});
      --left_;
      const bool pair = info_.spec.kind == TableKind::kDense && random_.Chance(0.3);
      if (pair) worker_.PairNext();
      Push(NextOp());
      if (pair) Pull(false, [](const Status&) {});
      if (random_.Chance(0.5)) {
        worker_.Later(random_.Between(0, worker_.world().plan().think_us), [this] { Step(); });
        break;
      }
    }
    worker_.OnLaneProgress();
  }

  std::string WhatItDoes() const override {
    return plan_.spec.name + " " + std::to_string(left_) + " left " + std::to_string(under_way_) +
           " under way";
  }

 private:
  // Somebody assigns the values that the others begin with. Who waits for it in vain, because all
  // who would have are dead, does it.
  void Begin() {
    if (under_way_ > 0 || !worker_.core().fatal().ok()) return;
    begun_ = !plan_.assign_once;
    if (begun_) return Step();
    const auto& workers = worker_.core().state()->workers;
    const bool first = !workers.empty() && workers.front().incarnation == worker_.core().incarnation();
    if (first || random_.Chance(0.3)) {
      begun_ = true;
      Push(PushOp::kAssignOnce);
      return Step();
    }
    Pull(true, [this](const Status& status) {
      if (!status.ok()) Push(PushOp::kAssignOnce);
      begun_ = true;
    });
  }

  void Push(PushOp op) {
    auto data = std::make_shared<CallData>();
    data->info = info_;
    FillPush(*data, plan_, worker_.core().incarnation().value * 100'000 + ++pushed_, random_);
    if (maker_.chooses() && op == PushOp::kUpdate) OnGrid(*data);
    const auto state = worker_.core().state();
    client::PartitionInput input{.state = state.get(), .table = &data->info, .keys = data->keys};
    input.hyper = {.lr = 0.25 * static_cast<double>(1 + random_.Below(4)),
                   .weight_decay = random_.Chance(0.5) ? 0.0 : 0.125};
    if ((info_.spec.optimizer_flags & kWithMomentum) != 0) input.hyper.beta1 = random_.Chance(0.8) ? 0.75 : 0;
    input.hyper = HyperFor(info_.spec, input.hyper, pushed_);
    input.op = op;
    const bool dense = info_.spec.kind == TableKind::kDense;
    if (op != PushOp::kUpdate && dense) input.column = PullColumn(info_.spec, random_);
    if (op == PushOp::kAssign && !dense) input.column = AssignedColumn(info_.spec, pushed_);
    if (op == PushOp::kAssignOnce) {
      input.column = 0;
    } else {
      FillMask(*data, plan_, random_);
    }
    input.values = InPieces(data->values, *data, plan_, random_);
    input.mask = data->mask;
    // A rogue's NaN is written into the frame, which must have values of its own then.
    input.borrow = dense && pushed_ % 2 == 0 && !worker_.world().plan().rogue;
    auto request = maker_.Push(input, random_);
    if (!request.ok()) return;
    const bool whole = data->mask.empty();
    if (!input.borrow) data->Poison();  // an async push copies
    CallEnd end{.kind = CallEnd::Kind::kPush, .table = info_.id};
    const bool floats = info_.spec.element == ElementType::kFloat32;
    if (worker_.world().plan().rogue && floats && whole && random_.Chance(0.2)) {
      end.rogue = PokeNan(*request, random_) && info_.spec.non_finite == NonFinitePolicy::kReject;
    }
    Submit(std::move(*request), std::move(end), std::move(data), [](const Status&) {});
  }

  PushOp NextOp() {
    const bool dense = info_.spec.kind == TableKind::kDense && info_.spec.element == ElementType::kFloat32;
    if (!random_.Chance(dense ? 0.1 : plan_.assign_rows)) return PushOp::kUpdate;
    return random_.Chance(0.5) ? PushOp::kAssign : PushOp::kAssignOnce;
  }

  void Pull(bool when_assigned, std::function<void(const Status&)> then) {
    auto data = std::make_shared<CallData>();
    data->info = info_;
    FillPull(*data, plan_, random_);
    const auto state = worker_.core().state();
    client::PartitionInput input{
        .state = state.get(), .table = &data->info, .keys = data->keys, .out = std::span(data->out)};
    input.when_assigned = when_assigned;
    if (!when_assigned) input.pull_column = PullColumn(info_.spec, random_);
    const bool rows = info_.spec.kind == TableKind::kSparse;
    const bool keys = rows && random_.Chance(0.1);
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
    CallEnd end{.kind = CallEnd::Kind::kPull, .table = info_.id};
    end.short_deadline = when_assigned;
    end.column = input.pull_column;
    Submit(std::move(*request), std::move(end), std::move(data), std::move(then));
  }

  void Submit(client::Request request, CallEnd end, std::shared_ptr<CallData> data,
              std::function<void(const Status&)> then) {
    ++under_way_;
    request.deadline_us = worker_.Deadline();
    if (end.short_deadline) {
      request.deadline_us = worker_.world().now_us() + random_.Between(500'000, 3'000'000);
    } else if (worker_.world().plan().short_deadlines && random_.Chance(0.1)) {
      end.short_deadline = true;
      request.deadline_us = worker_.world().now_us() + random_.Between(1000, 400'000);
    }
    worker_.Submit(std::move(request), std::move(end), std::move(data),
                   [this, then = std::move(then)](const Status& status) {
                     --under_way_;
                     then(status);
                     Step();
                   });
  }

  const TablePlan plan_;
  const wire::TableInfo info_;
  RequestMaker maker_;
  uint64_t pushed_ = 0;
  bool begun_ = false;
};

class BarrierLane final : public Lane {
 public:
  BarrierLane(WorkerProcess& worker, uint32_t barriers) : Lane(worker) { left_ = barriers; }

  void Step() override {
    worker_.OnLaneProgress();
    if (left_ == 0 || under_way_ > 0) return;
    ++under_way_;
    worker_.Later(random_.Between(0, 20 * worker_.world().plan().think_us), [this] {
      worker_.Barrier([this](const Status& status) {
        --under_way_;
        left_ = status.ok() ? left_ - 1 : 0;
        Step();
      });
    });
  }
  std::string WhatItDoes() const override { return std::to_string(left_) + " barriers left"; }
};

}  // namespace

std::unique_ptr<Lane> MakeAsyncLane(WorkerProcess& worker, const TablePlan& plan,
                                    const wire::TableInfo& info) {
  return std::make_unique<AsyncLane>(worker, plan, info);
}
std::unique_ptr<Lane> MakeBarrierLane(WorkerProcess& worker, uint32_t barriers) {
  return std::make_unique<BarrierLane>(worker, barriers);
}

}  // namespace cairn::sim
