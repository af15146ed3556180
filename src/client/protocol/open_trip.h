// Calls that were begun while a Client::Trip lives and have not been handed to the client's thread
// yet. Thread-safe: its own thread adds, whoever waits for one of its calls may send them early.
#pragma once

#include <functional>
#include <utility>

#include "base/call.h"
#include "base/mutex.h"
#include "base/recycled.h"

namespace cairn::client {

class OpenTrip {
 public:
  using Calls = RecycledVector<Call<void()>>;
  using Post = std::function<void(Calls)>;

  // `post` hands calls over. It is used only while calls are added, or were and are not sent.
  explicit OpenTrip(Post post) : post_(std::move(post)) {}

  void Add(Call<void()> call);
  // Hands over what has been begun so far, if anything has, in order. What is added later goes with
  // the next Send.
  void Send();

 private:
  const Post post_;
  Mutex mutex_;  // also keeps two Sends in order
  Calls calls_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::client
