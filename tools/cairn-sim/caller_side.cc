#include "caller_side.h"

#include <algorithm>
#include <utility>

#include "worker_process.h"

namespace cairn::sim {

namespace {
// So long it takes at most to make the next part of a push. All parts together stay below the time in which
// a worker whose core has ended must have ended its calls.
constexpr int64_t kMostPartUs = 8'000;
}  // namespace

CallerSide::CallerSide(WorkerProcess& worker)
    : worker_(worker),
      random_(Mix64(worker.uid(), 0xCA11)),
      room_(worker.world().plan().most_reserved_bytes) {}

client::ClientCore& CallerSide::core() { return worker_.core(); }
int64_t CallerSide::NowUs() const { return worker_.world().now_us(); }

void CallerSide::Do(client::CallerId caller, std::function<void(Go)> action) {
  callers_[caller].next.push_back(std::move(action));
  RunNext(caller);
}

void CallerSide::RunNext(client::CallerId caller) {
  Caller& one = callers_[caller];
  if (one.busy || one.next.empty()) return;
  one.busy = true;
  const auto action = std::move(one.next.front());
  one.next.pop_front();
  action([this, caller] {
    callers_[caller].busy = false;
    RunNext(caller);
  });
}

void CallerSide::TookRoom(uint64_t bytes) {
  const RoomEvent event{worker_.process(), bytes, true};
  worker_.world().Tell([&](Checker& c) { c.OnRoom(event); });
  if (bytes > room_.bound()) worker_.world().context().deeds.Add(Deed::kLargeAlone);
}

void CallerSide::FreeRoom(uint64_t bytes) {
  if (bytes == 0) return;
  const RoomEvent event{worker_.process(), bytes, false};
  worker_.world().Tell([&](Checker& c) { c.OnRoom(event); });
  if (room_.Free(bytes)) WakeAll();
}

void CallerSide::WakeAll() {
  for (const auto& waiter : waiting_)
    worker_.Later(random_.Between(0, 50), [this, id = waiter.first] { Retry(id); });
}

void CallerSide::Reserve(client::CallerId caller, uint64_t bytes, int64_t deadline_us, Ended then) {
  if (room_.TryReserve(bytes)) {
    TookRoom(bytes);
    return then(Status::Ok());
  }
  const uint64_t id = ++waiters_;
  waiting_.emplace(id, Waiter{caller, bytes, client::RoomWait(deadline_us), std::move(then)});
  room_.BeginWait();
  worker_.Later(std::max<int64_t>(0, deadline_us - NowUs()), [this, id] { Retry(id); });
  Retry(id);
}

void CallerSide::Retry(uint64_t id) {
  using Next = client::RoomWait::Next;
  auto it = waiting_.find(id);
  if (it == waiting_.end()) return;
  Waiter& waiter = it->second;
  while (true) {
    if (room_.TryReserve(waiter.bytes)) {
      TookRoom(waiter.bytes);
      return EndWait(id, Status::Ok());
    }
    switch (waiter.wait.OnFull(room_.closed(), false, NowUs())) {
      case Next::kSendTrip: gate_.SendTripOf(waiter.caller); break;
      case Next::kClosed: return EndWait(id, gate_.closed());
      case Next::kFull: return EndWait(id, {Code::kDeadlineExceeded, "no room for the push"});
      case Next::kInterrupted:
      case Next::kTryAgain: return;
    }
  }
}

void CallerSide::EndWait(uint64_t id, const Status& outcome) {
  room_.EndWait();
  const Ended then = std::move(waiting_.at(id).then);
  waiting_.erase(id);
  then(outcome);
}

Status CallerSide::Post(client::CallerId caller, TableId table, Call<void()> call) {
  std::shared_ptr<client::OpenTrip> trip;
  Status begun = gate_.Begin(caller, std::move(call), &trip);
  if (trip != nullptr) {
    tables_in_trip_.insert(table.value);
    ++in_trip_;
  }
  return begun;
}

void CallerSide::Post(Call<void()> call) { running_.Run(call); }

void CallerSide::Post(client::OpenTrip::Calls calls) {
  if (tables_in_trip_.size() > 1) worker_.world().context().deeds.Add(Deed::kTripOfTables);
  tables_in_trip_.clear();
  in_trip_ = 0;
  running_.Run(calls);
}

void CallerSide::Begin(client::CallerId caller, client::Request request,
                       const client::TableCalls::Terms& terms, const Ended& ended) {
  const TableId table = request.table;
  const Status begun = calls_.Begin(std::move(request), terms, ended,
                                    [&](Call<void()> call) { return Post(caller, table, std::move(call)); });
  if (!begun.ok()) ended(begun);
}

void CallerSide::BeginParts(client::CallerId caller, std::vector<client::Request> parts, uint64_t whole,
                            const client::TableCalls::Terms& terms, Ended ended, Go go) {
  auto state = std::make_shared<Parts>(
      Parts{caller, std::move(parts), nullptr, terms, std::move(ended), std::move(go)});
  std::ranges::reverse(state->left);
  if (state->left.size() > 1) {
    state->split = std::make_shared<client::SplitPush>(whole);
    worker_.world().context().deeds.Add(Deed::kSplitPush);
    ++between_parts_;
  }
  NextPart(state);
}

void CallerSide::NextPart(const std::shared_ptr<Parts>& parts) {
  client::Request part = std::move(parts->left.back());
  parts->left.pop_back();
  if (parts->left.empty()) {
    if (parts->split != nullptr) --between_parts_;
    parts->terms.split = parts->split;
    Begin(parts->caller, std::move(part), parts->terms, parts->ended);
    return parts->go();
  }
  const TableId table = part.table;
  calls_.BeginPart(std::move(part), parts->terms.deadline_us, parts->split,
                   [&](Call<void()> call) { return Post(parts->caller, table, std::move(call)); });
  if (random_.Chance(0.5)) return NextPart(parts);
  const int64_t pause_us = random_.Between(0, kMostPartUs);
  worker_.Later(pause_us, [this, parts] { NextPart(parts); });
  MayCloseWithin(pause_us);
}

// What PushPullCall is in the real client.
class CallerSide::PushPullRun final : public client::PushPull::Driver {
 public:
  PushPullRun(CallerSide& side, Both both, Ended ended)
      : side_(side), both_(std::move(both)), ended_(std::move(ended)), run_(side.core(), *this) {}

  void Start(const std::shared_ptr<PushPullRun>& self) {
    run_.Start(std::move(both_.push), std::move(both_.pull), side_.trip(), both_.deadline_us, self);
  }

 private:
  int64_t NowUs() const override { return side_.NowUs(); }
  Result<client::Request> PreparePull() override {
    side_.worker_.world().context().deeds.Add(Deed::kPulledAgain);
    return both_.prepare_pull();
  }
  void OnPushEnded() override { side_.FreeRoom(both_.reserved); }
  void OnEnded(const Status& outcome) override { ended_(outcome); }

  CallerSide& side_;
  Both both_;
  const Ended ended_;
  client::PushPull run_;
};

void CallerSide::BeginPushPull(client::CallerId caller, Both both, const Ended& ended) {
  const TableId table = both.push.table;
  const uint64_t reserved = both.reserved;
  auto run = std::make_shared<PushPullRun>(*this, std::move(both), ended);
  const Status begun = Post(caller, table, [run]() mutable { run->Start(run); });
  if (begun.ok()) return;
  FreeRoom(reserved);
  ended(begun);
}

void CallerSide::OpenTrip(client::CallerId caller, int64_t for_us) {
  Do(caller, [this, caller, for_us](const Go& go) {
    const auto trip = gate_.BeginTrip(caller);
    ++open_trips_;
    worker_.Later(for_us, [this, caller, trip] {
      Do(caller, [this, trip](const Go& end) {
        gate_.EndTrip(trip.get());
        --open_trips_;
        end();
      });
    });
    if (random_.Chance(0.3)) worker_.Later(random_.Between(0, for_us), [trip] { trip->Send(); });
    MayCloseWithin(for_us);
    go();
  });
}

// In the middle of something: hardly anybody would hit that by chance.
void CallerSide::MayCloseWithin(int64_t us) {
  if (random_.Chance(worker_.world().plan().closes / 4))
    worker_.Later(random_.Between(0, us), [this] { worker_.CloseClient(); });
}

bool CallerSide::Close(const Status& why) {
  DeedCounts& deeds = worker_.world().context().deeds;
  if (in_trip_ > 0) deeds.Add(Deed::kClosedInTrip);
  if (!waiting_.empty()) deeds.Add(Deed::kClosedWaiting);
  if (between_parts_ > 0) deeds.Add(Deed::kClosedBetweenParts);
  if (!gate_.Close(why)) return false;
  room_.Close();
  WakeAll();
  return true;
}

}  // namespace cairn::sim
