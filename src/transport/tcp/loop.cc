#include "transport/tcp/loop.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/memory_limits.h"

namespace cairn::transport {
namespace asio = boost::asio;
namespace {
constexpr int kHandlersPerTurn = 16;  // between two looks at what is polled
constexpr int kGiveUpPausing = 2;     // full pauses in vain
constexpr uint32_t kTryPausingEvery = 16;
constexpr int kFewPauses = 4;
constexpr int64_t kCrowdedUs = 500;  // no peer of ours keeps a core so long
constexpr int kBlockAtOnce = 64;
constexpr int64_t kMostStayUs = 20'000;  // what is not written then is left to the loop's thread

// A role that stopped in the middle of a change can't go on, so the process ends here. Not by a signal:
// the cause is known, and a dump of all that memory helps nobody.
[[noreturn]] void OutOfMemory(const std::string& name) {
  MemoryLeft left;
  try {
    left = ReadMemoryLeft(MemoryFilesOfThisProcess());
  } catch (const std::bad_alloc&) {
  }
  std::fprintf(
      stderr,
      "cairn: out of memory in %s (%llu KiB left, the limit is %s): give the process more, use smaller "
      "tables, or more servers\n",
      name.c_str(), static_cast<unsigned long long>(left.bytes / 1024), Words(left.kind));
  std::_Exit(kOutOfMemoryCode);
}

// Wakes the loop's thread, and no more.
struct Wake {
  using allocator_type = Recycled<std::byte>;
  allocator_type get_allocator() const noexcept { return {}; }
  void operator()() const {}
};
}  // namespace

void Loop::Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct Loop::Impl {
  explicit Impl(std::string n) : name(std::move(n)) {}
  const std::string name;
  // One thread runs it; any thread may post.
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  asio::steady_timer timer{io};
  std::function<int64_t()> tick;
  bool ticked = false;  // loop thread only: the last handlers included a tick
  std::atomic<bool> stop{false};
  std::thread thread;
  bool has_turn = false;  // the loop's thread; its own
  // The rest is for whoever has the turn. A null is one that was removed while they were gone through.
  std::vector<Polled*> polled;
  bool asking = false;  // the peers of `polled` have been asked to wake this loop
  struct Pausing {
    int in_vain = 0;     // full pauses that ended without work, in a row
    uint32_t waits = 0;  // since then
  } pausing;
  int block_at_once = 0;  // so many waits go without yielding
};

Loop::Loop(std::string name)
    : impl_(std::make_unique<Impl>(std::move(name))), turn_(std::make_shared<LoopTurn>(this)) {}

Loop::~Loop() {
  Stop();
  turn_->End();  // of one that was never started
}

asio::io_context& Loop::context() { return impl_->io; }

int64_t Loop::NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Loop::Post(std::function<void()> fn) { asio::post(impl_->io, InTurn(std::move(fn))); }

void Loop::SetTick(std::function<int64_t()> tick) {
  CAIRN_CHECK(!impl_->thread.joinable());
  impl_->tick = std::move(tick);
}

void Loop::Start() {
  CAIRN_CHECK(!impl_->thread.joinable());
  if (impl_->tick) ArmTick(0);
  impl_->thread = std::thread([this] {
    pthread_setname_np(pthread_self(), impl_->name.substr(0, 15).c_str());
    try {
      Run();
    } catch (const std::bad_alloc&) {
      OutOfMemory(impl_->name);
    }
  });
}

void Loop::Stop() {
  if (!impl_->thread.joinable()) return;
  CAIRN_CHECK(impl_->thread.get_id() != std::this_thread::get_id());
  impl_->stop.store(true, std::memory_order_release);
  asio::post(impl_->io, Wake{});
  impl_->thread.join();
  turn_->End();
}

void Loop::ArmTick(int64_t after_us) {
  impl_->timer.expires_after(std::chrono::microseconds(after_us));
  impl_->timer.async_wait(InTurn([this](const boost::system::error_code& error) {
    if (error) return;
    impl_->ticked = true;
    ArmTick(impl_->tick());
  }));
}

void Loop::AddPolled(Polled* polled) { impl_->polled.push_back(polled); }

void Loop::RemovePolled(Polled* polled) {
  // The place stays until nobody goes through the list.
  const auto at = std::find(impl_->polled.begin(), impl_->polled.end(), polled);
  if (at != impl_->polled.end()) *at = nullptr;
}

// From here to RunInAnyTurn the turn is taken in one function and given in another, as has_turn says.
void Loop::TakeTurn() CAIRN_NO_THREAD_SAFETY_ANALYSIS {
  if (std::exchange(impl_->has_turn, true)) return;
  turn_->Take();
}

void Loop::Run() CAIRN_NO_THREAD_SAFETY_ANALYSIS {
  TakeTurn();
  while (!impl_->stop.load(std::memory_order_acquire)) {
    impl_->ticked = false;
    const bool slept = Sleep();
    TakeTurn();
    StopAsking();
    // A tick alone is no sign that more work is near: an idle node goes straight back to sleep.
    if (slept && impl_->ticked && !PollOnce(Who::kLoop)) continue;
    while (!impl_->stop.load(std::memory_order_acquire) && SpinForWork(Who::kLoop, nullptr)) {
    }
  }
  impl_->has_turn = false;
  turn_->Give();
}

// Until there is something for this thread; false if there was at once. Others may have the turn
// meanwhile: the handler that ends the sleep takes it.
bool Loop::Sleep() CAIRN_NO_THREAD_SAFETY_ANALYSIS {
  if (!MayBlock()) return false;
  impl_->has_turn = false;
  // Those who could not take the turn have left their calls to us, or to the one who has it now.
  if (!turn_->Give() && turn_->TryTake()) {
    impl_->has_turn = true;
    return false;
  }
  // A handler that left its work to the one who has the turn was no reason to get up.
  bool slept = false;
  do {
    slept = impl_->io.run_one() == 1;
  } while (slept && !impl_->has_turn && !impl_->stop.load(std::memory_order_acquire));
  return slept;
}

void Loop::RunInAnyTurn(Call<void()> fn) CAIRN_NO_THREAD_SAFETY_ANALYSIS {
  if (impl_->has_turn || turn_->TryTake()) {
    impl_->has_turn = true;
    return fn();
  }
  turn_->Add(std::move(fn));
  turn_->Help();
}

// Asks to be woken; false if that came too late for something.
bool Loop::MayBlock() {
  std::vector<Polled*>& polled = impl_->polled;
  std::erase(polled, nullptr);
  if (polled.empty()) return true;
  impl_->asking = true;
  for (Polled* one : polled) one->AskToBeWoken();
  // A peer stores its bytes and then looks whether it was asked; we ask and then look for bytes.
  // With a full fence on both sides at least one sees the other.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return std::none_of(polled.begin(), polled.end(), [](Polled* one) { return one->HasWork(); });
}

void Loop::StopAsking() {
  if (!std::exchange(impl_->asking, false)) return;
  for (Polled* one : impl_->polled) {
    if (one != nullptr) one->Awake();
  }
}

bool Loop::PollPolled() {
  bool did = false;
  // By index: what they do may add others.
  for (size_t i = 0; i < impl_->polled.size(); ++i) {
    if (Polled* one = impl_->polled[i]; one != nullptr && one->Poll()) did = true;
  }
  if (did) std::erase(impl_->polled, nullptr);
  return did;
}

// Everything that can be done now, in a turn that ends; false if that was nothing.
bool Loop::PollOnce(Who who) {
  bool did = turn_->RunAdded();
  if (impl_->polled.empty()) return (who == Who::kLoop && impl_->io.poll() > 0) || did;
  if (PollPolled()) did = true;
  if (who == Who::kHelper) return did;
  // Handlers may make new ones without end, e.g. while a large frame is written.
  for (int i = 0; i < kHandlersPerTurn && impl_->io.poll_one() > 0; ++i) did = true;
  return did;
}

// The loop's thread makes way for those who wait, and they for it.
bool Loop::BetterStop(Who who, const Ready* ready) const {
  if (who == Who::kLoop) return turn_->wanted() && !impl_->polled.empty();
  return (*ready)() || turn_->loop_waits();
}

// True when something was done; false when the loop had better sleep, or the helper stop.
bool Loop::SpinForWork(Who who, const Ready* ready) {
  if (PollOnce(who)) return true;
  if (BetterStop(who, ready)) return false;
  if (PauseForWork(who, ready)) return true;
  if (impl_->block_at_once > 0) {
    --impl_->block_at_once;
    return false;
  }
  int64_t now_us = NowUs();
  const int64_t until_us = now_us + kYieldUs;
  do {
    if (BetterStop(who, ready)) return false;
    const int64_t before_us = now_us;
    sched_yield();
    now_us = NowUs();
    // Somebody computes on this core and took all of its time slice. Who blocks is put in front of
    // it when woken; who yields waits for the end of the slice, milliseconds, every time.
    if (now_us - before_us > kCrowdedUs) impl_->block_at_once = kBlockAtOnce;
    if (PollOnce(who)) return true;
  } while (now_us < until_us);
  return false;
}

// Pauses and looks at the rings. A peer that runs on another core answers within these pauses, in a
// microsecond or two; one that waits for this very core never does, and each pause only keeps it
// from running (round trips of 4 KB on one core: 11.5 µs with 64 pauses, 7.3 with 4). Which it is
// shows by whether pausing helps; now and then it is tried anew.
bool Loop::PauseForWork(Who who, const Ready* ready) {
  if (impl_->polled.empty()) {
    for (int i = 0; i < kPauses; ++i) Pause();
    return PollOnce(who);
  }
  Impl::Pausing& pausing = impl_->pausing;
  const bool full = pausing.in_vain < kGiveUpPausing || ++pausing.waits % kTryPausingEvery == 0;
  for (int i = 0; i < (full ? kPauses : kFewPauses); ++i) {
    Pause();
    if (PollPolled()) {
      if (full) pausing.in_vain = 0;
      return true;
    }
    if (BetterStop(who, ready)) return false;
  }
  if (full && pausing.in_vain < kGiveUpPausing) ++pausing.in_vain;
  return false;
}

bool Loop::Writing() const {
  return std::any_of(impl_->polled.begin(), impl_->polled.end(),
                     [](const Polled* one) { return one != nullptr && one->Writing(); });
}

void Loop::HelpOnce(bool until_written) try {
  StopAsking();
  PollOnce(Who::kHelper);
  const Ready written = [this] { return !Writing(); };
  const int64_t end_us = NowUs() + kMostStayUs;
  while (until_written && Writing() && SpinForWork(Who::kHelper, &written)) {
    if (turn_->loop_waits() || NowUs() >= end_us) break;
  }
  // The first answers are there already: without this the loop's thread would be woken for them, just
  // before the caller comes back to wait.
  for (int i = 0; until_written && i < kHandlersPerTurn && !turn_->loop_waits(); ++i) {
    if (!PollOnce(Who::kHelper)) break;
  }
  LeaveToSleeper();
} catch (const std::bad_alloc&) {
  OutOfMemory(impl_->name);
}

bool Loop::HelpUntil(const Ready& ready, int64_t until_us) try {
  StopAsking();
  turn_->RunAdded();
  const bool sensible = !impl_->polled.empty();
  while (sensible && !ready() && SpinForWork(Who::kHelper, &ready)) {
    if (turn_->loop_waits() || NowUs() >= until_us) break;
  }
  LeaveToSleeper();
  return sensible;
} catch (const std::bad_alloc&) {
  OutOfMemory(impl_->name);
}

// From now on the peers wake the loop's thread, which sleeps; it is woken for what is left.
void Loop::LeaveToSleeper() {
  if (MayBlock()) return;
  PollOnce(Who::kHelper);
  if (!MayBlock()) asio::post(impl_->io, InTurn(Wake{}));
}

}  // namespace cairn::transport
