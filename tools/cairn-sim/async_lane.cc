// Pushes to and pulls from an async table, several in flight.
#include <algorithm>
#include <memory>
#include <utility>

#include "client/partition.h"
#include "content.h"
#include "lane.h"
#include "worker_process.h"

namespace cairn::sim {

Lane::Lane(WorkerProcess& worker) : worker_(worker), random_(worker.random().Next()) {}

namespace {

class AsyncLane final : public Lane {
 public:
  AsyncLane(WorkerProcess& worker, const TablePlan& plan, const wire::TableInfo& info)
      : Lane(worker), plan_(plan), info_(info) {
    left_ = plan.ops;
  }

  void Step() override {
    while (left_ > 0 && under_way_ < plan_.window && worker_.core().fatal().ok()) {
      // A caller waits at the bound; now and then one does not look.
      if (!worker_.core().has_room() && under_way_ > 0 && !random_.Chance(0.2)) break;
      if (random_.Chance(0.25)) Pull();
      Push();
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
  void Push() {
    --left_;
    auto data = std::make_shared<CallData>();
    data->info = info_;
    FillPush(*data, plan_, worker_.core().incarnation().value * 100'000 + ++pushed_, random_);
    const auto state = worker_.core().state();
    const client::PartitionInput input{.state = state.get(),
                                       .table = &data->info,
                                       .keys = data->keys,
                                       .values = data->values,
                                       .hyper = {.lr = 0.25f * static_cast<float>(1 + random_.Below(4)),
                                                 .weight_decay = random_.Chance(0.5) ? 0.0f : 0.125f}};
    auto request = client::PreparePush(input, worker_.world().pool());
    if (!request.ok()) {
      worker_.world().context().report("outcomes", "PreparePush: " + request.status().ToString());
      return;
    }
    data->Poison();  // an async push copies
    CallEnd end{.kind = CallEnd::Kind::kPush, .table = info_.id};
    CutFrames(*request, info_.spec, worker_.world().plan().split, random_, worker_.world().pool());
    if (worker_.world().plan().rogue && info_.spec.element == ElementType::kFloat32 && random_.Chance(0.2)) {
      end.rogue = PokeNan(*request, random_) && info_.spec.non_finite == NonFinitePolicy::kReject;
    }
    Submit(std::move(*request), std::move(end), std::move(data));
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
    Submit(std::move(*request), {.kind = CallEnd::Kind::kPull, .table = info_.id}, std::move(data));
  }

  void Submit(client::Request request, CallEnd end, std::shared_ptr<CallData> data) {
    ++under_way_;
    request.deadline_us = worker_.Deadline();
    if (worker_.world().plan().short_deadlines && random_.Chance(0.1)) {
      end.short_deadline = true;
      request.deadline_us = worker_.world().now_us() + random_.Between(1000, 400'000);
    }
    worker_.Submit(std::move(request), std::move(end), std::move(data), [this](const Status&) {
      --under_way_;
      Step();
    });
  }

  const TablePlan plan_;
  const wire::TableInfo info_;
  uint64_t pushed_ = 0;
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
