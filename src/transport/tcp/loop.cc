#include "transport/tcp/loop.h"

#include <pthread.h>
#include <sched.h>

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

#include "base/check.h"

namespace cairn::transport {
namespace asio = boost::asio;
namespace {
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

void Loop::Run() {
  asio::io_context& io = impl_->io;
  while (!impl_->stop.load(std::memory_order_acquire)) {
    impl_->ticked = false;
    const size_t ran = io.run_one();  // blocks
    // A tick alone is no sign that more work is near: an idle node goes straight back to sleep.
    if (ran == 1 && impl_->ticked && io.poll() == 0) continue;
    while (!impl_->stop.load(std::memory_order_acquire) && SpinForWork()) {
    }
  }
}

// True when handlers ran; false when the loop had better block.
bool Loop::SpinForWork() {
  asio::io_context& io = impl_->io;
  if (io.poll() > 0) return true;
  for (int i = 0; i < kPauses; ++i) Pause();
  if (io.poll() > 0) return true;
  const int64_t until_us = NowUs() + kYieldUs;
  do {
    sched_yield();
    if (io.poll() > 0) return true;
  } while (NowUs() < until_us);
  return false;
}

}  // namespace cairn::transport
