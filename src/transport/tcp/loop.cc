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

namespace cairn::transport {
namespace asio = boost::asio;
namespace {
constexpr int kHandlersPerTurn = 16;  // between two looks at what is polled
constexpr int kGiveUpPausing = 2;     // full pauses in vain
constexpr uint32_t kTryPausingEvery = 16;
constexpr int kFewPauses = 4;
constexpr int64_t kCrowdedUs = 500;  // no peer of ours keeps a core so long
constexpr int kBlockAtOnce = 64;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}
}  // namespace

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
  // Loop thread only. A null is one that was removed while they were gone through.
  std::vector<Polled*> polled;
  bool asking = false;  // the peers of `polled` have been asked to wake this loop
  struct Pausing {
    int in_vain = 0;     // full pauses that ended without work, in a row
    uint32_t waits = 0;  // since then
  } pausing;
  int block_at_once = 0;  // so many waits go without yielding
};

Loop::Loop(std::string name) : impl_(std::make_unique<Impl>(std::move(name))) {}

Loop::~Loop() { Stop(); }

asio::io_context& Loop::context() { return impl_->io; }

int64_t Loop::NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Loop::Post(std::function<void()> fn) { asio::post(impl_->io, std::move(fn)); }

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
      // A role that stopped in the middle of a change can't go on; the process ends as by a crash.
      std::fprintf(stderr,
                   "cairn: out of memory in %s: give the process more, use smaller tables, or more servers\n",
                   impl_->name.c_str());
      std::abort();
    }
  });
}

void Loop::Stop() {
  if (!impl_->thread.joinable()) return;
  CAIRN_CHECK(impl_->thread.get_id() != std::this_thread::get_id());
  impl_->stop.store(true, std::memory_order_release);
  asio::post(impl_->io, [] {});
  impl_->thread.join();
}

void Loop::ArmTick(int64_t after_us) {
  impl_->timer.expires_after(std::chrono::microseconds(after_us));
  impl_->timer.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    impl_->ticked = true;
    ArmTick(impl_->tick());
  });
}

void Loop::AddPolled(Polled* polled) { impl_->polled.push_back(polled); }

void Loop::RemovePolled(Polled* polled) {
  // The place stays until nobody goes through the list.
  const auto at = std::find(impl_->polled.begin(), impl_->polled.end(), polled);
  if (at != impl_->polled.end()) *at = nullptr;
}

void Loop::Run() {
  asio::io_context& io = impl_->io;
  while (!impl_->stop.load(std::memory_order_acquire)) {
    impl_->ticked = false;
    size_t ran = 0;
    if (MayBlock()) ran = io.run_one();  // blocks
    StopAsking();
    // A tick alone is no sign that more work is near: an idle node goes straight back to sleep.
    if (ran == 1 && impl_->ticked && !PollOnce()) continue;
    while (!impl_->stop.load(std::memory_order_acquire) && SpinForWork()) {
    }
  }
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
bool Loop::PollOnce() {
  if (impl_->polled.empty()) return impl_->io.poll() > 0;
  bool did = PollPolled();
  // Handlers may make new ones without end, e.g. while a large frame is written.
  for (int i = 0; i < kHandlersPerTurn && impl_->io.poll_one() > 0; ++i) did = true;
  return did;
}

// True when handlers ran; false when the loop had better block.
bool Loop::SpinForWork() {
  if (PollOnce() || PauseForWork()) return true;
  if (impl_->block_at_once > 0) {
    --impl_->block_at_once;
    return false;
  }
  int64_t now_us = NowUs();
  const int64_t until_us = now_us + kYieldUs;
  do {
    const int64_t before_us = now_us;
    sched_yield();
    now_us = NowUs();
    // Somebody computes on this core and took all of its time slice. Who blocks is put in front of
    // it when woken; who yields waits for the end of the slice, milliseconds, every time.
    if (now_us - before_us > kCrowdedUs) impl_->block_at_once = kBlockAtOnce;
    if (PollOnce()) return true;
  } while (now_us < until_us);
  return false;
}

// Pauses and looks at the rings. A peer that runs on another core answers within these pauses, in a
// microsecond or two; one that waits for this very core never does, and each pause only keeps it
// from running (round trips of 4 KB on one core: 11.5 µs with 64 pauses, 7.3 with 4). Which it is
// shows by whether pausing helps; now and then it is tried anew.
bool Loop::PauseForWork() {
  if (impl_->polled.empty()) {
    for (int i = 0; i < kPauses; ++i) Pause();
    return PollOnce();
  }
  Impl::Pausing& pausing = impl_->pausing;
  const bool full = pausing.in_vain < kGiveUpPausing || ++pausing.waits % kTryPausingEvery == 0;
  for (int i = 0; i < (full ? kPauses : kFewPauses); ++i) {
    Pause();
    if (PollPolled()) {
      if (full) pausing.in_vain = 0;
      return true;
    }
  }
  if (full && pausing.in_vain < kGiveUpPausing) ++pausing.in_vain;
  return false;
}

}  // namespace cairn::transport
