// Pushes to, pulls from and push-pulls of an async table, several in flight, some in a trip; some tables
// begin with an assign.
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

// Longer than a worker whose core has ended may have calls under way: closing sends what a trip holds.
constexpr int64_t kLongTripUs = 400'000;

class AsyncLane final : public Lane {
 public:
  AsyncLane(WorkerProcess& worker, const TablePlan& plan, const wire::TableInfo& info)
      : Lane(worker),
        plan_(plan),
        info_(info),
        maker_(worker, info.spec),
        caller_(random_.Chance(0.6) ? worker.trainer() : worker.NewCaller()) {
    left_ = plan.ops;
  }

  void Step() override {
    if (!begun_) return Begin();
    while (left_ > 0 && under_way_ < plan_.window && worker_.core().fatal().ok()) {
      // A core that holds pushes back has its queue filled only now and then.
      if (!worker_.core().has_room() && under_way_ > 0 && !random_.Chance(0.2)) break;
      if (random_.Chance(plan().trips))
        worker_.callers().OpenTrip(caller_, random_.Between(0, random_.Chance(0.1) ? kLongTripUs : 4'000));
      if (random_.Chance(0.25)) Pull(false, [](const Status&) {});
      --left_;
      const PushOp op = NextOp();
      random_.Chance(plan().push_pulls) ? PushPull(op) : Push(op);
      if (random_.Chance(0.5)) {
        worker_.Later(random_.Between(0, plan().think_us), [this] { Step(); });
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
  using Go = CallerSide::Go;
  using Then = std::function<void(const Status&)>;

  // One call: what it was begun with, and the state that its caller saw then.
  struct Made {
    std::shared_ptr<CallData> data;
    std::shared_ptr<const wire::ClusterState> state;
    client::PartitionInput input;
    uint64_t bytes = 0;
    uint64_t number = 0;  // PreparedEvent::call
    int64_t deadline_us = 0;
    CallerSide::Ended ended;
  };

  const Plan& plan() const { return worker_.world().plan(); }

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

  // A call of this kind begins; `input` is still to be filled.
  std::shared_ptr<Made> NewCall(CallEnd end, std::shared_ptr<CallData> data, Then then) {
    auto made = std::make_shared<Made>();
    made->data = data;
    made->number = end.call = worker_.NewCall();
    made->deadline_us = worker_.Deadline();
    if (end.short_deadline) {
      made->deadline_us = worker_.world().now_us() + random_.Between(500'000, 3'000'000);
    } else if (plan().short_deadlines && random_.Chance(0.1)) {
      end.short_deadline = true;
      made->deadline_us = worker_.world().now_us() + random_.Between(1000, 400'000);
    }
    ++under_way_;
    made->ended = worker_.CallBegins(std::move(end), std::move(data),
                                     [this, then = std::move(then)](const Status& status) {
                                       --under_way_;
                                       then(status);
                                       Step();
                                     });
    return made;
  }

  // The caller sees the state, and what it makes of it is made with that, however long it waits for room.
  client::PartitionInput& Look(Made& made) {
    made.state = worker_.core().state();
    made.input.state = made.state.get();
    made.input.table = &made.data->info;
    made.input.keys = made.data->keys;
    return made.input;
  }

  std::shared_ptr<CallData> Pushed() {
    auto data = std::make_shared<CallData>();
    data->info = info_;
    FillPush(*data, plan_, worker_.core().incarnation().value * 100'000 + ++pushed_, random_);
    return data;
  }

  void FillInput(Made& made, PushOp op) {
    CallData& data = *made.data;
    if (maker_.chooses() && op == PushOp::kUpdate) OnGrid(data);
    client::PartitionInput& input = Look(made);
    input.part_bytes = plan().part_bytes;
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
      FillMask(data, plan_, random_);
    }
    input.values = InPieces(data.values, data, plan_, random_);
    input.mask = data.mask;
    made.bytes = data.values.size() + data.keys.size() * sizeof(RowKey);
  }

  // What a caller does of a push before it is made: it waits for room. Calls `make` when it has it.
  void WhenRoom(const std::shared_ptr<Made>& made, PushOp op, std::function<void(const Go&)> make) {
    worker_.callers().Do(caller_, [this, made, op, make = std::move(make)](const Go& go) {
      FillInput(*made, op);
      worker_.callers().Reserve(caller_, made->bytes, made->deadline_us,
                                [made, make, go](const Status& room) {
                                  if (room.ok()) return make(go);
                                  made->ended(room);
                                  go();
                                });
    });
  }

  void Push(PushOp op) {
    auto made = NewCall({.kind = CallEnd::Kind::kPush, .table = info_.id}, Pushed(), [](const Status&) {});
    WhenRoom(made, op, [this, made](const Go& go) {
      client::PartitionInput& input = made->input;
      // A rogue's NaN is written into the frame, which must have values of its own then.
      input.borrow = info_.spec.kind == TableKind::kDense && pushed_ % 2 == 0 && !plan().rogue;
      auto parts = maker_.Push(input, made->number, random_);
      if (!parts.ok()) return;
      const bool whole = input.mask.empty();
      if (!input.borrow) made->data->Poison();  // an async push copies
      made->data->in_parts = parts->size() > 1;
      const bool floats = info_.spec.element == ElementType::kFloat32;
      if (plan().rogue && floats && whole && random_.Chance(0.2)) {
        made->data->rogue = PokeNan((*parts)[random_.Below(parts->size())], random_) &&
                            info_.spec.non_finite == NonFinitePolicy::kReject;
      }
      worker_.callers().BeginParts(caller_, std::move(*parts), made->bytes,
                                   {.deadline_us = made->deadline_us, .reserved = made->bytes}, made->ended,
                                   go);
    });
  }

  void PushPull(PushOp op) {
    auto data = Pushed();
    data->out.resize(data->values.size());
    auto made =
        NewCall({.kind = CallEnd::Kind::kPushPull, .table = info_.id}, std::move(data), [](const Status&) {});
    WhenRoom(made, op, [this, made](const Go& go) {
      auto pull = MakePull(*made);
      made->input.borrow = true;
      auto push = maker_.WholePush(made->input, made->number, random_);
      if (!push.ok() || !pull.ok()) return;
      worker_.callers().BeginPushPull(caller_,
                                      {.push = std::move(*push),
                                       .pull = std::move(*pull),
                                       .deadline_us = made->deadline_us,
                                       .reserved = made->bytes,
                                       .prepare_pull =
                                           [this, made] {
                                             Look(*made);
                                             return MakePull(*made);
                                           }},
                                      made->ended);
      go();
    });
  }

  Result<client::Request> MakePull(const Made& made) {
    client::PartitionInput input{.state = made.input.state,
                                 .table = made.input.table,
                                 .keys = made.data->keys,
                                 .out = std::span(made.data->out)};
    return Reported(client::PreparePull(input, worker_.world().pool()));
  }

  Result<client::Request> Reported(Result<client::Request> request) {
    if (!request.ok())
      worker_.world().context().report("outcomes", "PreparePull: " + request.status().ToString());
    return request;
  }

  PushOp NextOp() {
    const bool dense = info_.spec.kind == TableKind::kDense && info_.spec.element == ElementType::kFloat32;
    if (!random_.Chance(dense ? 0.1 : plan_.assign_rows)) return PushOp::kUpdate;
    return random_.Chance(0.5) ? PushOp::kAssign : PushOp::kAssignOnce;
  }

  void Pull(bool when_assigned, Then then) {
    auto data = std::make_shared<CallData>();
    data->info = info_;
    FillPull(*data, plan_, random_);
    const uint8_t column = when_assigned ? 0 : PullColumn(info_.spec, random_);
    const bool keys = info_.spec.kind == TableKind::kSparse && random_.Chance(0.1);
    if (keys) {
      data->keys.clear();
      data->out.clear();
    }
    CallEnd end{.kind = CallEnd::Kind::kPull, .table = info_.id};
    end.short_deadline = when_assigned;
    end.column = keys ? 0 : column;
    auto made = NewCall(std::move(end), std::move(data), std::move(then));
    worker_.callers().Do(caller_, [this, made, keys, column, when_assigned](const Go& go) {
      client::PartitionInput& input = Look(*made);
      input.out = std::span(made->data->out);
      input.when_assigned = when_assigned;
      input.pull_column = keys ? 0 : column;
      auto request = Reported(keys ? client::PrepareKeys(input, &made->data->found, worker_.world().pool())
                                   : client::PreparePull(input, worker_.world().pool()));
      if (!request.ok()) return;
      worker_.callers().Begin(caller_, std::move(*request), {.deadline_us = made->deadline_us}, made->ended);
      go();
    });
  }

  const TablePlan plan_;
  const wire::TableInfo info_;
  RequestMaker maker_;
  const client::CallerId caller_;
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
