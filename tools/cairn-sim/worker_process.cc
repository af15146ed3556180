#include "worker_process.h"

#include <algorithm>
#include <utility>

#include "launcher.h"

namespace cairn::sim {

namespace {
constexpr int64_t kTickUs = 50'000;
// Of lanes whose calls always go at once.
constexpr client::CallerId kNoTrips{0};
constexpr int64_t kStartTimeoutUs = 60'000'000;
constexpr int64_t kLeavePatienceUs = 1'500'000;
// The answer to the last Leave may be lost with the scheduler, which is done then: only the
// deadline ends that call.
constexpr int64_t kLeaveTimeoutUs = 50'000'000;
}  // namespace

WorkerProcess::WorkerProcess(World& world, uint32_t number, int32_t wanted_rank, bool short_life)
    : world_(world), number_(number), wanted_rank_(wanted_rank), short_life_(short_life), random_(0) {
  uid_ = world.NewUid();
  random_ = Random(Mix64(uid_, 17));
  const std::string name = "worker " + std::to_string(number);
  process_ = world.fabric().AddProcess(WorkerHost(number), name);
  port_ = world.fabric().AddPort(process_, name + "." + std::to_string(process_),
                                 Actor{.role = wire::Role::kWorker, .index = number}.Tag(), this);
}

WorkerProcess::~WorkerProcess() = default;

void WorkerProcess::Start() {
  client::ClientCoreOptions options;
  options.schedulers = world_.scheduler_endpoints();
  options.scheduler = options.schedulers[0];
  options.wanted_rank = wanted_rank_;
  options.uid = uid_;
  options.seed = Mix64(uid_, 3);
  options.max_unacked_bytes = world_.plan().max_unacked_bytes;
  options.max_unacked_frames = world_.plan().max_unacked_frames;
  options.resend_after_us = world_.plan().resend_after_us;
  core_ = client::ClientCore::Make(
      options, *port_, world_.pool(),
      [this](const std::string& line) { world_.Log("worker " + std::to_string(number_), line); },
      world_.now_us(), this);
  callers_ = std::make_unique<CallerSide>(*this);
  ++calls_;
  core_->Start(
      world_.now_us() + kStartTimeoutUs,
      [this](const Status& status) {
        End({.kind = CallEnd::Kind::kStart}, status);
        Later(0, [this, status] { OnStarted(status); });
      },
      world_.now_us());
  world_.fabric().Run(process_, world_.now_us() + kTickUs, [this] { Tick(); });
}

void WorkerProcess::OnStarted(const Status& status) {
  if (!status.ok()) return Exit(status);
  number_ % 2 == 0 || world_.plan().tables.empty() ? CreateNext() : CreateAll();
}

// Every other worker asks for all of them at once: others ask for the same ones meanwhile.
void WorkerProcess::CreateAll() {
  std::vector<TableSpec> specs;
  for (const TablePlan& plan : world_.plan().tables) specs.push_back(plan.spec);
  ++calls_;
  core_->CreateTables(
      std::move(specs), world_.now_us() + kCallTimeoutUs,
      [this](Result<std::vector<wire::TableInfo>> made) {
        End({.kind = CallEnd::Kind::kCreate}, made.status());
        Later(0, [this, made = std::move(made)] {
          if (!made.ok()) return Exit(made.status());
          tables_ = *made;
          StartLanes();
        });
      },
      world_.now_us());
}

void WorkerProcess::CreateNext() {
  if (tables_.size() == world_.plan().tables.size()) return StartLanes();
  CreateTable(world_.plan().tables[tables_.size()].spec, kCallTimeoutUs, false,
              [this](Result<wire::TableInfo> r) {
                if (!r.ok()) return Exit(r.status());
                tables_.push_back(*r);
                CreateNext();
              });
}

void WorkerProcess::StartLanes() {
  for (size_t i = 0; i < tables_.size(); ++i) {
    TablePlan plan = world_.plan().tables[i];
    if (short_life_) plan.ops = std::max<uint32_t>(1, plan.ops / 4);
    const auto make = plan.spec.mode == Mode::kSync       ? MakeRoundLane
                      : plan.spec.staleness != kUnbounded ? MakeBoundedLane
                                                          : MakeAsyncLane;
    lanes_.push_back(make(*this, plan, tables_[i]));
  }
  if (world_.plan().barriers > 0) lanes_.push_back(MakeBarrierLane(*this, world_.plan().barriers));
  if (world_.plan().churn_tables) lanes_.push_back(MakeChurnLane(*this));
  for (auto& lane : lanes_) lane->Step();
}

void WorkerProcess::OnLaneProgress() {
  if (fatal_seen_ || leave_sent_) return;
  if (!leaving_) {
    for (auto& lane : lanes_) {
      if (!lane->share_done()) return;
    }
    leaving_ = true;
    Later(kLeavePatienceUs, [this] { TryToLeave(); });
  }
  for (auto& lane : lanes_) {
    if (lane->busy()) return;
  }
  if (!world_.MayEnd()) {
    if (!std::exchange(waits_for_the_end_, true))
      Later(kLeavePatienceUs / 4, [this] {
        waits_for_the_end_ = false;
        OnLaneProgress();
      });
    return;
  }
  leave_sent_ = true;
  ++calls_;
  core_->Leave(
      world_.now_us() + kLeaveTimeoutUs,
      [this](const Status& status) {
        if (status.ok()) world_.context().left.insert(core_->incarnation().value);
        End({.kind = CallEnd::Kind::kLeave}, status);
        Later(0, [this, status] { Exit(status); });
      },
      world_.now_us());
}

// A round of ours is open and the others may wait for our part in another table while they, too,
// want to leave: lanes that stand still do one round more. As a user's program would have to.
void WorkerProcess::TryToLeave() {
  if (leave_sent_ || fatal_seen_) return;
  for (auto& lane : lanes_) {
    if (!lane->busy()) lane->OneMore();
  }
  Later(kLeavePatienceUs + random_.Between(0, kLeavePatienceUs), [this] { TryToLeave(); });
}

void WorkerProcess::End(CallEnd end, const Status& status) {
  --calls_;
  end.status = status;
  end.incarnation = core_->incarnation();
  end.worker = number_;
  end.closed = callers_->closed();
  end.overtaken = world_.fabric().overtaken(WorkerHost(number_));
  if (status.ok() && (end.kind == CallEnd::Kind::kPush || end.kind == CallEnd::Kind::kRound ||
                      end.kind == CallEnd::Kind::kDecide || end.kind == CallEnd::Kind::kPushPull)) {
    ++world_.outcome().acknowledged;
  }
  if (status.ok() && end.kind == CallEnd::Kind::kPull) ++world_.outcome().reads;
  // Of a push in parts, one of which is refused, nobody can tell.
  const bool unknown = status.code() == Code::kOutcomeUnknown && !(end.rogue && end.in_parts);
  const bool late = status.code() == Code::kDeadlineExceeded || unknown;
  if (late && !end.short_deadline && core_->fatal().ok()) Later(0, [this, status] { Exit(status); });
  world_.Tell([&](Checker& c) { c.OnCallEnd(end); });
}

CallerSide::Ended WorkerProcess::CallBegins(CallEnd end, std::shared_ptr<CallData> data,
                                            std::function<void(const Status&)> done) {
  ++calls_;
  data->acknowledged = acknowledged_;
  const bool watched = end.kind == CallEnd::Kind::kPushPull && !data->out.empty();
  const std::byte* const out = data->out.data();
  if (watched) read_into_[out] = data.get();
  return [this, end, data = std::move(data), done = std::move(done), watched,
          out](const Status& status) mutable {
    if (watched) read_into_.erase(out);
    end.info = &data->info;
    end.keys = data->keys;
    end.out = data->out;
    end.acknowledged = &data->acknowledged;
    end.told = data->told;
    end.read = &data->read;
    end.in_parts = data->in_parts;
    end.rogue |= data->rogue;
    End(end, status);
    data->Poison();  // from here on the caller may do what it likes with its memory
    Later(0, [done = std::move(done), status] { done(status); });
  };
}

void WorkerProcess::Submit(client::Request request, CallEnd end, std::shared_ptr<CallData> data,
                           std::function<void(const Status&)> done) {
  client::TableCalls::Terms terms{.deadline_us = request.deadline_us};
  if (client::IsRound(request.kind)) terms.info = &data->told;
  callers_->Begin(kNoTrips, std::move(request), terms,
                  CallBegins(std::move(end), std::move(data), std::move(done)));
}

void WorkerProcess::CreateTable(const TableSpec& spec, int64_t timeout_us, bool churned,
                                std::function<void(Result<wire::TableInfo>)> done) {
  ++calls_;
  core_->CreateTable(
      spec, world_.now_us() + timeout_us,
      [this, churned, done = std::move(done)](Result<wire::TableInfo> r) {
        End({.kind = CallEnd::Kind::kCreate, .short_deadline = churned, .churned = churned}, r.status());
        Later(0, [done, r = std::move(r)] { done(r); });
      },
      world_.now_us());
}

void WorkerProcess::DropTable(const std::string& name, int64_t timeout_us,
                              std::function<void(const Status&)> done) {
  ++calls_;
  core_->DropTable(
      name, world_.now_us() + timeout_us,
      [this, done = std::move(done)](const Status& status) {
        End({.kind = CallEnd::Kind::kDrop, .short_deadline = true, .churned = true}, status);
        Later(0, [done, status] { done(status); });
      },
      world_.now_us());
}

void WorkerProcess::Barrier(std::function<void(const Status&)> done) {
  ++calls_;
  const uint64_t count = world_.context().barrier_bases[core_->incarnation().value] + ++barriers_entered_;
  world_.Tell([&](Checker& c) { c.OnBarrier(number_, core_->incarnation(), count, false); });
  core_->Barrier(
      Deadline(),
      [this, count, done = std::move(done)](const Status& status) {
        if (status.ok()) {
          world_.Tell([&](Checker& c) { c.OnBarrier(number_, core_->incarnation(), count, true); });
        }
        End({.kind = CallEnd::Kind::kBarrier}, status);
        Later(0, [done, status] { done(status); });
      },
      world_.now_us());
}

void WorkerProcess::Later(int64_t delay_us, std::function<void()> action) {
  world_.fabric().Run(process_, world_.now_us() + delay_us, std::move(action));
}

void WorkerProcess::OnConnected(ConnId conn) {
  core_->OnConnected(conn, world_.now_us());
  AfterCall();
}
void WorkerProcess::OnMessage(ConnId conn, wire::InFrame& frame) {
  core_->OnMessage(conn, frame, world_.now_us());
  AfterCall();
}
void WorkerProcess::OnDisconnect(ConnId conn) {
  core_->OnDisconnect(conn, world_.now_us());
  AfterCall();
}
// As a program may do that is about to end, or gives up.
void WorkerProcess::MaybeClose() {
  if (random_.Chance(world_.plan().closes * kTickUs / 1e6)) CloseClient();
}

void WorkerProcess::CloseClient() {
  if (world_.healed() || leave_sent_ || lanes_.empty() || !core_->fatal().ok() || callers_->closed()) return;
  if (calls_ > 0) world_.context().deeds.Add(Deed::kClosed);
  callers_->Close({Code::kCancelled, "this client is closed"});
  core_->Cancel(world_.now_us());
}

void WorkerProcess::Tick() {
  core_->OnTick(world_.now_us());
  MaybeClose();
  AfterCall();
  world_.fabric().Run(process_, world_.now_us() + kTickUs, [this] { Tick(); });
}

void WorkerProcess::AfterCall() {
  if (const Term term = core_->term(); term != std::exchange(term_, term)) {
    const Actor actor{.role = wire::Role::kWorker, .index = number_, .process = process_};
    world_.Tell([&](Checker& c) { c.OnTerm(actor, term); });
  }
  if (const auto state = core_->state(); state->version > version_) {
    version_ = state->version;
    const Actor actor{.role = wire::Role::kWorker, .index = number_, .process = process_};
    world_.Tell([&](Checker& c) { c.OnState(actor, *state); });
  }
  if (core_->fatal().ok() || fatal_seen_) return;
  fatal_seen_ = true;
  // Every call under way ends with it, at once or at the next tick.
  Later(4 * kTickUs, [this] { OnFatal(); });
}

void WorkerProcess::OnFatal() {
  // What waits in a trip ends with the trip; if the client was closed, with that.
  if (calls_ > 0 && callers_->trip_open() && !callers_->closed())
    return Later(kTickUs, [this] { OnFatal(); });
  if (calls_ > 0) {
    world_.context().report("liveness",
                            "worker " + std::to_string(number_) + " has " + std::to_string(calls_) +
                                " calls under way after its core ended with " + core_->fatal().ToString());
  }
  Exit(core_->fatal());
}

void WorkerProcess::Exit(const Status& status) {
  if (exited_) return;
  exited_ = true;
  world_.launcher().OnExit(*this, status);
}

void WorkerProcess::OnAcknowledged(SlotId slot, Incarnation incarnation, Seq seq) {
  world_.Tell([&](Checker& c) { c.OnAcknowledged(slot, incarnation, seq); });
  const auto& positions = world_.context().positions[{incarnation.value, slot.value}];
  if (seq.value >= 1 && seq.value <= positions.size()) {
    Position& highest = acknowledged_[slot.value];
    highest = std::max(highest, positions[seq.value - 1]);
  }
}
void WorkerProcess::OnRoundAcknowledged(Incarnation incarnation, TableId table, Round round,
                                        const Status& outcome) {
  world_.Tell([&](Checker& c) { c.OnRoundAcknowledged(incarnation, table, round, outcome); });
}
void WorkerProcess::OnRead(SlotId slot, Incarnation incarnation, TableId table, Position position,
                           const std::byte* to) {
  if (auto it = read_into_.upper_bound(to); it != read_into_.begin()) {
    CallData& data = *(--it)->second;
    if (to < data.out.data() + data.out.size()) data.read[slot.value] = position;
  }
  world_.Tell([&](Checker& c) { c.OnRead(slot, incarnation, table, position); });
}

std::string WorkerProcess::WhatItDoes() const {
  std::string text = "worker " + std::to_string(number_) + ": " + std::to_string(calls_) + " calls";
  for (const auto& lane : lanes_) text += ", " + lane->WhatItDoes();
  return text + (leave_sent_ ? ", leaving" : leaving_ ? ", wants to leave" : "");
}

}  // namespace cairn::sim
