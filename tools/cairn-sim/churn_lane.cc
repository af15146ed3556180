// Tables that come and go: made, used, dropped and made anew under the same name, sometimes with
// another spec, by several workers at once.
#include <memory>
#include <utility>

#include "client/partition/partition.h"
#include "content.h"
#include "lane.h"
#include "worker_process.h"

namespace cairn::sim {

namespace {

constexpr int64_t kTimeoutUs = 4'000'000;

class ChurnLane final : public Lane {
 public:
  explicit ChurnLane(WorkerProcess& worker) : Lane(worker) {
    left_ = 1 + static_cast<uint32_t>(random_.Below(5));
  }

  void Step() override {
    worker_.OnLaneProgress();
    if (left_ == 0 || under_way_ > 0 || !worker_.core().fatal().ok()) return;
    ++under_way_;
    worker_.Later(random_.Between(0, 8 * worker_.world().plan().think_us), [this] { Create(); });
  }
  std::string WhatItDoes() const override { return std::to_string(left_) + " temporary tables left"; }

 private:
  void EndOfTurn() {
    --under_way_;
    --left_;
    Step();
  }

  void Create() {
    plan_ = {};
    plan_.keys = 12;
    plan_.spec = {.name = random_.Chance(0.5) ? "tmp" : "temp", .kind = TableKind::kSparse};
    if (random_.Chance(0.5)) {
      plan_.spec.element = ElementType::kInt64;
      plan_.spec.dim = 4;
    } else {
      plan_.spec.dim = 3;
    }
    if (random_.Chance(0.2)) plan_.spec.mode = Mode::kSync;
    worker_.CreateTable(plan_.spec, kTimeoutUs, true, [this](Result<wire::TableInfo> r) {
      if (!r.ok()) return random_.Chance(0.5) ? Drop() : EndOfTurn();
      info_ = *r;
      pushes_ = 1 + static_cast<uint32_t>(random_.Below(6));
      Push();
    });
  }

  void Push() {
    if (pushes_-- == 0) return random_.Chance(0.5) ? Drop() : EndOfTurn();
    auto data = std::make_shared<CallData>();
    data->info = info_;
    FillPush(*data, plan_, worker_.core().incarnation().value * 100'000 + 50'000 + ++pushed_, random_);
    const auto state = worker_.core().state();
    const client::PartitionInput input{
        .state = state.get(), .table = &data->info, .keys = data->keys, .values = data->values};
    const bool sync = info_.spec.mode == Mode::kSync;
    auto request = sync ? client::PrepareRound(input, worker_.world().pool())
                        : client::PreparePush(input, worker_.world().pool());
    if (!request.ok()) return EndOfTurn();
    if (sync) pushes_ = 0;  // others may never come to it: one, with a deadline
    request->deadline_us = worker_.world().now_us() + kTimeoutUs;
    const auto kind = sync ? CallEnd::Kind::kRound : CallEnd::Kind::kPush;
    worker_.Submit(std::move(*request),
                   {.kind = kind, .table = info_.id, .short_deadline = true, .churned = true},
                   std::move(data), [this, sync](const Status& status) {
                     if (status.ok()) return Push();
                     // An abandoned round keeps the worker from leaving: its table has to go.
                     sync ? DropForGood() : EndOfTurn();
                   });
  }

  void DropForGood() {
    worker_.DropTable(plan_.spec.name, kTimeoutUs, [this](const Status& status) {
      const bool gone = status.ok() || status.code() == Code::kNotFound || !worker_.core().fatal().ok();
      gone ? EndOfTurn() : DropForGood();
    });
  }

  void Drop() {
    worker_.DropTable(plan_.spec.name, kTimeoutUs, [this](const Status&) { EndOfTurn(); });
  }

  TablePlan plan_;
  wire::TableInfo info_;
  uint32_t pushes_ = 0;
  uint64_t pushed_ = 0;
};

}  // namespace

std::unique_ptr<Lane> MakeChurnLane(WorkerProcess& worker) { return std::make_unique<ChurnLane>(worker); }

}  // namespace cairn::sim
