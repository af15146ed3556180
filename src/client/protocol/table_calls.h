// Prepared requests of a table's verbs on their way to the core and back: what becomes one call to its
// caller (the parts of a split push, the push and the pull of a push-pull), which trip it belongs to, when
// its room is free again and its memory the caller's, and what the caller is told. Begun by the callers'
// threads; the core's thread runs what they have begun.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/recycled.h"
#include "cairn/status.h"
#include "client/partition/request.h"
#include "client/protocol/client_core.h"
#include "client/protocol/split_push.h"

namespace cairn::client {

// The frames of a request that refer to the caller's memory. Weak, so that the core may see from the count
// whether anybody else holds a frame.
using WeakFrames = RecycledVector<std::weak_ptr<wire::Frame>>;
WeakFrames BorrowingFrames(const Request& request);

class TableCalls {
 public:
  // What is around the core. The core's thread, but for FreeRoom.
  class Driver {
   public:
    virtual ~Driver() = default;
    virtual ClientCore& core() = 0;
    virtual int64_t NowUs() const = 0;
    // Request::trip of what runs now.
    virtual uint64_t trip() const = 0;
    // Around each request; what was submitted may have changed the core's state.
    virtual void OnBegun() = 0;
    virtual void OnSubmitted() = 0;
    virtual void OnEnded() = 0;
    // The callers' memory that these frames refer to is about to be given back.
    virtual void Disown(const WeakFrames& frames) = 0;
    // Of the client's bound. Any thread.
    virtual void FreeRoom(uint64_t bytes) = 0;
  };
  explicit TableCalls(Driver& driver) : driver_(driver) {}

  struct Terms {
    int64_t deadline_us = 0;
    uint64_t reserved = 0;  // of the client's bound; freed when the call has ended, or is not taken
    RoundInfo* info = nullptr;
    std::shared_ptr<SplitPush> split = nullptr;  // this is the last part of it
  };
  // `post` takes a call to the core's thread: Status(Call<void()>), not ok if it never runs. Then this is
  // not ok either, says what the caller is to be told, and `ended`, void(const Status&), is never called.
  // Else that is called once, on the core's thread.
  template <class Ended, class Post>
  Status Begin(Request request, const Terms& terms, Ended ended, Post&& post);
  // A part of a split push that is not the last. Where it is not taken, nor is what follows.
  template <class Post>
  void BeginPart(Request part, int64_t deadline_us, std::shared_ptr<SplitPush> split, Post&& post);

 private:
  void Submit(Request request);
  void SubmitPart(Request part, SplitPush& split);
  Status NotTaken(const Status& why, const Terms& terms);

  Driver& driver_;
  SplitPush::Numbers split_pushes_;  // the core's thread
};

template <class Ended, class Post>
Status TableCalls::Begin(Request request, const Terms& terms, Ended ended, Post&& post) {
  request.deadline_us = terms.deadline_us;
  request.info = terms.info;
  const auto end = [this, ended, reserved = terms.reserved](const Status& status) {
    driver_.FreeRoom(reserved);
    ended(status);
  };
  const auto split = terms.split;
  request.done = [this, end, split, frames = BorrowingFrames(request)](const Status& status) {
    driver_.Disown(frames);
    driver_.OnEnded();
    split ? split->Ended(status) : end(status);
  };
  auto call = [this, request = std::move(request), end, split]() mutable {
    driver_.OnBegun();
    if (split) {
      const bool goes = split->BeginLast(request, [end, &whole = *split] { end(whole.outcome()); });
      if (!goes) return request.done(split->outcome());
    } else {
      request.trip = driver_.trip();
    }
    Submit(std::move(request));
  };
  const Status posted = post(std::move(call));
  return posted.ok() ? posted : NotTaken(posted, terms);
}

template <class Post>
void TableCalls::BeginPart(Request part, int64_t deadline_us, std::shared_ptr<SplitPush> split, Post&& post) {
  part.deadline_us = deadline_us;
  part.done = [this, split](const Status& status) {
    driver_.OnEnded();
    split->Ended(status);
  };
  // A closed client refuses the rest, and so the call.
  (void)post([this, part = std::move(part), split = std::move(split)]() mutable {
    SubmitPart(std::move(part), *split);
  });
}

}  // namespace cairn::client
