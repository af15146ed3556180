// What all parts of a shard read: its options, which server it is, the newest state of the cluster, and the
// time of the event under way. The shard (shard.cc) alone changes it, at the start of an event; its parts
// hold it as const. The shard's thread owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/buffer.h"
#include "base/ids.h"
#include "cairn/status.h"
#include "server/slots/records.h"
#include "server/slots/shard_options.h"
#include "wire/cluster_state.h"

namespace cairn::server {

class ShardContext {
 public:
  // `pool` and `observer`, which may be null, outlive it.
  ShardContext(const ShardOptions& options, BufferPool& pool, ShardObserver* observer)
      : options_(options), pool_(pool), observer_(observer) {}

  const ShardOptions& options() const { return options_; }
  const std::string& name() const { return options_.name; }
  BufferPool& pool() const { return pool_; }
  ShardObserver* observer() const { return observer_; }
  void Log(const std::string& line) const {
    if (options_.log) options_.log(line);
  }

  // Which server this is; nothing until it is registered.
  bool registered() const { return registered_; }
  uint32_t server_index() const { return server_index_; }
  Incarnation incarnation() const { return incarnation_; }

  bool has_state() const { return state_ != nullptr; }
  const wire::ClusterState& state() const { return *state_; }  // requires has_state()
  StateVersion version() const { return state_ ? state_->version : StateVersion{}; }
  Status EndOfJob() const;  // ok while the job runs; requires has_state()

  int64_t now_us() const { return now_us_; }      // of the event under way
  int64_t awake_us() const { return awake_us_; }  // when this thread last began to run after a pause

  // For the shard alone.
  void Register(uint32_t server_index, Incarnation incarnation);
  using StatePtr = std::shared_ptr<const wire::ClusterState>;
  StatePtr TakeState(StatePtr state);  // a newer one; returns the one before, or null
  StatePtr ForgetState();
  void NoteTime(int64_t now_us);

 private:
  const ShardOptions options_;
  BufferPool& pool_;
  ShardObserver* const observer_;
  bool registered_ = false;
  uint32_t server_index_ = 0;
  Incarnation incarnation_;
  StatePtr state_;
  int64_t now_us_ = 0;
  int64_t awake_us_ = 0;
};

}  // namespace cairn::server
