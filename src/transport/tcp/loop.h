// A thread with an event loop. Everything of one role (its state machine, network and timers) lives
// on one loop, so nothing in it needs a lock. Waiting follows what was measured: a few pauses, then
// yielding for some tens of microseconds, then blocking; an idle loop uses no CPU.
//
// Descriptors, timers and posts are Asio's. Rings of shared memory have no descriptor that tells of
// every change: they are `Polled`, looked at while the loop spins. Before it blocks, the loop asks
// their peers to wake it, and looks once more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/recycled.h"
#include "transport/tcp/turn.h"

namespace boost::asio {
class io_context;
}

namespace cairn::transport {

// Something that the loop looks at in every turn. All functions run on the thread that has the turn.
class Polled {
 public:
  virtual ~Polled() = default;
  // Does what can be done now; false if that was nothing. May add and remove others, and itself.
  virtual bool Poll() = 0;
  // The loop is about to block: whoever has work for it must wake it from now on.
  virtual void AskToBeWoken() = 0;
  // Whether Poll would do something. After AskToBeWoken and a full fence.
  virtual bool HasWork() = 0;
  // Whether it has something to write.
  virtual bool Writing() const = 0;
  // The loop runs again: nobody need wake it.
  virtual void Awake() = 0;
};

class Loop {
 public:
  static constexpr int kPauses = 64;
  static constexpr int64_t kYieldUs = 50;
  static void Pause();

  // `name` is the thread's (15 characters are shown).
  explicit Loop(std::string name);
  ~Loop();  // Stop()
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Called on the loop's thread, first at once, then again after as many microseconds as it
  // returned. Set before Start.
  void SetTick(std::function<int64_t()> tick);
  void Start();
  // Ends the thread after the handler that runs now, and joins it. What was posted and has not run
  // is dropped. Not from the loop's own thread. After it, whatever lived on the loop may be
  // destroyed from the caller's thread.
  void Stop();
  // Runs `fn` on the loop's thread, in the order of the posts of one thread. From any thread, also
  // before Start.
  void Post(std::function<void()> fn);

  // Every handler of Asio's on this loop is wrapped by this, or by InAnyTurn: it runs when the loop's thread
  // has the turn, and the thread keeps the turn until it sleeps.
  template <class Handler>
  auto InTurn(Handler handler) {
    return Turned<Handler>{this, std::move(handler)};
  }
  // Like InTurn, for a handler that only has to run soon, and not after an error: if somebody has the
  // turn, he runs it, and the loop's thread sleeps on. (It would make him stop.)
  template <class Handler>
  auto InAnyTurn(Handler handler) {
    return AnyTurned<Handler>{this, std::move(handler)};
  }
  // For those who would rather be the loop than wait for it (turn.h).
  const std::shared_ptr<LoopTurn>& turn() const { return turn_; }

  // Whoever has the turn, or while the loop does not run. `polled` stays until it is removed.
  void AddPolled(Polled* polled);
  void RemovePolled(Polled* polled);

  boost::asio::io_context& context();
  // Monotonic.
  static int64_t NowUs();

 private:
  // Asio keeps its operations in the memory that their handlers name. Left alone it would recycle
  // it within one call of poll, which here is a handler or two.
  template <class Handler>
  struct Turned {
    using allocator_type = Recycled<std::byte>;
    Loop* loop;
    Handler handler;
    allocator_type get_allocator() const noexcept { return {}; }
    template <class... Arguments>
    void operator()(Arguments&&... arguments) {
      loop->TakeTurn();
      handler(std::forward<Arguments>(arguments)...);
    }
  };
  template <class Handler>
  struct AnyTurned {
    using allocator_type = Recycled<std::byte>;
    Loop* loop;
    Handler handler;
    allocator_type get_allocator() const noexcept { return {}; }
    template <class Error>
    void operator()(const Error& error) {
      if (!error) loop->RunInAnyTurn(std::move(handler));
    }
  };
  void RunInAnyTurn(Call<void()> fn);

  struct Impl;
  friend class LoopTurn;
  enum class Who { kLoop, kHelper };  // only the loop's own thread runs Asio's handlers
  using Ready = std::function<bool()>;
  void Run();
  void TakeTurn();
  bool Sleep();
  // A helper's, who has the turn.
  void HelpOnce(bool until_written);
  bool HelpUntil(const Ready& ready, int64_t until_us);
  void LeaveToSleeper();

  bool SpinForWork(Who who, const Ready* ready);
  bool PauseForWork(Who who, const Ready* ready);
  bool BetterStop(Who who, const Ready* ready) const;
  bool PollOnce(Who who);
  bool PollPolled();
  bool MayBlock();
  bool Writing() const;
  void StopAsking();
  void ArmTick(int64_t after_us);
  std::unique_ptr<Impl> impl_;
  const std::shared_ptr<LoopTurn> turn_;
};

}  // namespace cairn::transport
