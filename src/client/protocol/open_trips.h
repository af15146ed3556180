// Which threads have a trip open, and how deep: calls of such a thread are collected, and go when the
// outermost trip of the thread ends or a wait needs them (open_trip.h). Not thread-safe: hand_over.h guards
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "client/protocol/open_trip.h"

namespace cairn::client {

class OpenTrips {
 public:
  // `post` hands the calls of a trip over.
  explicit OpenTrips(OpenTrip::Post post) : post_(std::move(post)) {}

  // Opens one, or goes deeper in the one that the thread has.
  std::shared_ptr<OpenTrip> Begin(std::thread::id thread);
  // Sends it and closes it, if this ends the outermost; true then. From any thread.
  bool End(const OpenTrip* trip);
  // Null if the thread has none.
  std::shared_ptr<OpenTrip> Of(std::thread::id thread) const;
  void SendAll();
  size_t size() const { return open_.size(); }

 private:
  struct OfThread {
    std::thread::id thread;
    uint32_t depth = 0;
    std::shared_ptr<OpenTrip> trip;
  };
  const OpenTrip::Post post_;
  std::vector<OfThread> open_;
};

}  // namespace cairn::client
