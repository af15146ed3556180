// Which callers have a trip open, and how deep: calls of such a caller are collected, and go when the
// outermost trip of the caller ends or a wait needs them (open_trip.h). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "client/protocol/caller_id.h"
#include "client/protocol/open_trip.h"

namespace cairn::client {

class OpenTrips {
 public:
  // `post` hands the calls of a trip over.
  explicit OpenTrips(OpenTrip::Post post) : post_(std::move(post)) {}

  // Opens one, or goes deeper in the one that the caller has.
  std::shared_ptr<OpenTrip> Begin(CallerId caller);
  // Sends it and closes it, if this ends the outermost; true then. From any thread.
  bool End(const OpenTrip* trip);
  // Null if the caller has none.
  std::shared_ptr<OpenTrip> Of(CallerId caller) const;
  void SendAll();
  size_t size() const { return open_.size(); }

 private:
  struct OfCaller {
    CallerId caller;
    uint32_t depth = 0;
    std::shared_ptr<OpenTrip> trip;
  };
  const OpenTrip::Post post_;
  std::vector<OfCaller> open_;
};

}  // namespace cairn::client
