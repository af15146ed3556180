// Steps on a bounded table: read what everybody has added so far, add one to rows of one's own, end the step.
// A worker's rows count its steps, so whoever reads them sees how far behind they are.
#include <algorithm>
#include <memory>
#include <utility>

#include "client/partition/partition.h"
#include "lane.h"
#include "worker_process.h"

namespace cairn::sim {

namespace {

constexpr uint64_t kRows = 4;  // of each worker, most of them in different slots

RowKey RowOf(Incarnation worker, uint64_t row) { return Mix64(worker.value, 0xB0D + row); }

class BoundedLane final : public Lane {
 public:
  BoundedLane(WorkerProcess& worker, const TablePlan& plan, const wire::TableInfo& info)
      : Lane(worker), info_(info) {
    left_ = plan.ops;
  }

  void Step() override {
    worker_.OnLaneProgress();
    if (left_ == 0 || reading_ || waits_ || !worker_.core().fatal().ok()) return;
    Read();
  }
  std::string WhatItDoes() const override {
    return info_.spec.name + " " + std::to_string(left_) + " steps left, clock " +
           std::to_string(worker_.core().clock(info_.id).value);
  }

 private:
  client::PartitionInput InputOf(CallData& data) {
    state_ = worker_.core().state();
    return {.state = state_.get(), .table = &data.info, .keys = data.keys};
  }

  void Read() {
    auto data = std::make_shared<CallData>();
    data->info = info_;
    BoundedRead read{.call = worker_.NewCall(), .table = info_.id, .staleness = info_.spec.staleness};
    read.reader = worker_.core().incarnation();
    read.clock = worker_.core().clock(info_.id);
    for (const wire::WorkerInfo& worker : worker_.core().state()->workers) {
      if (worker.join_view == ViewNumber{0}) continue;
      read.workers.push_back(worker.incarnation);
      for (uint64_t row = 0; row < kRows; ++row) data->keys.push_back(RowOf(worker.incarnation, row));
    }
    data->out.resize(data->keys.size() * sizeof(int64_t));
    client::PartitionInput input = InputOf(*data);
    input.out = std::span(data->out);
    auto request = client::PreparePull(input, worker_.world().pool());
    if (!request.ok())
      return worker_.world().context().report("outcomes", "PreparePull: " + request.status().ToString());
    request->deadline_us = worker_.Deadline();
    worker_.world().Tell([&](Checker& c) { c.OnBoundedRead(read); });
    reading_ = true;
    ++under_way_;
    CallEnd end{.kind = CallEnd::Kind::kPull, .table = info_.id};
    end.call = read.call;
    worker_.Submit(std::move(*request), end, data, [this, data](const Status& status) {
      reading_ = false;
      --under_way_;
      if (status.ok()) AddOne();
      Step();
    });
  }

  // In one push or in several, which are not waited for.
  void AddOne() {
    const uint64_t cut = random_.Below(kRows + 1);
    Push(0, cut);
    Push(cut, kRows);
    --left_;
    worker_.core().EndStep(info_.id, left_ == 0, worker_.world().now_us());
    const StepEnd end{worker_.core().incarnation(), info_.id, ++steps_, left_ == 0};
    worker_.world().Tell([&](Checker& c) { c.OnStepEnd(end); });
    waits_ = true;
    worker_.Later(random_.Between(0, worker_.world().plan().think_us), [this] {
      waits_ = false;
      Step();
    });
  }

  void Push(uint64_t first, uint64_t end) {
    if (first == end) return;
    auto data = std::make_shared<CallData>();
    data->info = info_;
    for (uint64_t row = first; row < end; ++row)
      data->keys.push_back(RowOf(worker_.core().incarnation(), row));
    const std::vector<int64_t> ones(end - first, 1);
    const auto bytes = std::as_bytes(std::span(ones));
    data->values.assign(bytes.begin(), bytes.end());
    client::PartitionInput input = InputOf(*data);
    input.values = std::span<const std::byte>(data->values);
    auto request = client::PreparePush(input, worker_.world().pool());
    if (!request.ok())
      return worker_.world().context().report("outcomes", "PreparePush: " + request.status().ToString());
    request->deadline_us = worker_.Deadline();
    ++under_way_;
    worker_.Submit(std::move(*request), {.kind = CallEnd::Kind::kPush, .table = info_.id}, data,
                   [this, data](const Status&) {
                     --under_way_;
                     Step();
                   });
  }

  const wire::TableInfo info_;
  std::shared_ptr<const wire::ClusterState> state_;
  uint64_t steps_ = 0;
  bool reading_ = false, waits_ = false;
};

}  // namespace

std::unique_ptr<Lane> MakeBoundedLane(WorkerProcess& worker, const TablePlan& plan,
                                      const wire::TableInfo& info) {
  return std::make_unique<BoundedLane>(worker, plan, info);
}

}  // namespace cairn::sim
