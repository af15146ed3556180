// One call on a table as the public verbs make it (include/cairn/client.h), in bytes; what partition.h
// can't check of it; and what partition.h makes of it. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cairn/client.h"
#include "cairn/status.h"
#include "client/partition/dense_plan.h"
#include "client/partition/error_feedback.h"
#include "client/partition/partition.h"
#include "client/partition/piece_list.h"
#include "wire/cluster_state.h"

namespace cairn {

struct TableHandle {
  wire::TableInfo info;
  std::shared_ptr<client::DensePlanCache> plans = nullptr;    // dense
  std::shared_ptr<client::ErrorFeedback> feedback = nullptr;  // WireFormat::kTopK
};

// Dense: no keys. What its pointers refer to is used until the call returns, but for `info`
// and the arrays.
struct TableCall {
  ElementType element = ElementType::kFloat32;  // of the arrays that were passed
  std::span<const RowKey> keys;
  client::PieceList<const std::byte> values;
  client::PieceList<std::byte> out;

  // Of one verb's options or another's (include/cairn/client.h); what a verb has not, is as here.
  Hyper hyper;
  double weight = 1.0;
  bool weighted = false;
  int64_t timeout_ms = 0;
  std::span<const std::byte> mask;
  PushOp op = PushOp::kUpdate;
  uint8_t column = 0;
  double value_scale = 1.0;
  bool joined = false;
  bool not_finite = false;
  double scale = 1.0;
  bool skip = false;
  bool borrow = false;
  RoundInfo* info = nullptr;
  uint8_t pull_column = 0;
  bool when_assigned = false;

  uint64_t bytes() const { return values.bytes() + keys.size_bytes(); }
};

namespace client {

// The type of the arrays, and a table that is no more.
Status CheckCall(const TableHandle& table, const TableCall& call, const wire::ClusterState& state);
// An empty gradient of a dense table would otherwise pass for a bare done.
Status CheckGiven(const TableHandle& table, const TableCall& call);
// The result refers to its arguments.
PartitionInput InputOf(const TableHandle& table, const TableCall& call, const wire::ClusterState& state);

}  // namespace client
}  // namespace cairn
