// What is pushed. Accounts are rows (1, n, n², hash(n)) of int64, where n counts the pushes of a
// worker: sums of them tell what is missing or there twice. Floats are random bits of moderate size.
#pragma once

#include <cstdint>
#include <memory>

#include "base/random.h"
#include "client/partition/piece_list.h"
#include "client/protocol/client_core.h"
#include "lane.h"
#include "plan.h"
#include "wire/cluster_state.h"

namespace cairn::sim {

inline constexpr size_t kAccountColumns = 4;
// Column `column` of the row of push n; wraps like the tables do.
uint64_t AccountValue(uint64_t n, size_t column);

inline size_t ElementBytes(const TableSpec& spec) { return spec.element == ElementType::kInt64 ? 8 : 4; }

// Keys and values of one push or contribution; sparse keys may repeat.
void FillPush(CallData& data, const TablePlan& plan, uint64_t n, Random& random);
// Rounds values of floats so that sums of them are exact: they become multiples of 1/64.
void OnGrid(CallData& data);
// Keys (and room for the answer) of a pull.
void FillPull(CallData& data, const TablePlan& plan, Random& random);

// Mostly 0; in tables of floats now and then the optimizer's state or its steps.
uint8_t PullColumn(const TableSpec& spec, Random& random);
// Of the n-th push, an assign of rows: mostly the values, else state or steps.
uint8_t AssignedColumn(const TableSpec& spec, uint64_t n);
// Dense: now and then a mask that leaves segments out; there lies something that must not matter.
void FillMask(CallData& data, const TablePlan& plan, Random& random);
// The same array, now and then in pieces, of which one may be missing: it stands for zeros.
client::PieceList<const std::byte> InPieces(const std::vector<std::byte>& array, const CallData& data,
                                            const TablePlan& plan, Random& random);

// Puts a NaN into one value of an encoded request, past the client's own checks.
// False if there is nothing to put it in.
bool PokeNan(client::Request& request, Random& random);
// Cuts some frames of a request in two, at a slot's end. The client may be given any number of
// frames per shard thread; it makes more than one only of requests too large for a simulation.
void CutFrames(client::Request& request, const TableSpec& spec, double chance, Random& random,
               BufferPool& pool);

}  // namespace cairn::sim
