// A lane of a worker's program: one thread of a trainer, so to say, that makes one kind of call
// after the other. Lanes of a worker are independent, so that no order of calls can deadlock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/random.h"
#include "cairn/client.h"
#include "cairn/types.h"
#include "plan.h"
#include "wire/cluster_state.h"

namespace cairn::sim {

class WorkerProcess;

// The caller's memory of one call.
struct CallData {
  wire::TableInfo info;
  std::vector<RowKey> keys;
  std::vector<std::byte> values;
  std::vector<std::byte> out;
  std::vector<std::byte> mask;
  std::vector<RowKey> found;  // the keys of a table
  RoundInfo told;
  std::map<uint32_t, Position> acknowledged;
  std::map<uint32_t, Position> read;  // push-pulls: per slot
  bool in_parts = false;
  bool rogue = false;  // CallEnd::rogue
  // Overwrites all of it: a core that still looks at it after `done` will be seen.
  void Poison();
};

class Lane {
 public:
  virtual ~Lane() = default;
  // Goes on with the program; called at the start and whenever a call has ended.
  virtual void Step() = 0;
  virtual bool share_done() const { return left_ == 0; }
  bool busy() const { return under_way_ > 0; }
  virtual void OneMore() {}
  virtual std::string WhatItDoes() const = 0;

 protected:
  explicit Lane(WorkerProcess& worker);
  WorkerProcess& worker_;
  Random random_;
  uint32_t left_ = 0;
  uint32_t under_way_ = 0;
};

std::unique_ptr<Lane> MakeAsyncLane(WorkerProcess& worker, const TablePlan& plan,
                                    const wire::TableInfo& info);
std::unique_ptr<Lane> MakeBoundedLane(WorkerProcess& worker, const TablePlan& plan,
                                      const wire::TableInfo& info);
std::unique_ptr<Lane> MakeRoundLane(WorkerProcess& worker, const TablePlan& plan,
                                    const wire::TableInfo& info);
std::unique_ptr<Lane> MakeBarrierLane(WorkerProcess& worker, uint32_t barriers);
std::unique_ptr<Lane> MakeChurnLane(WorkerProcess& worker);

}  // namespace cairn::sim
