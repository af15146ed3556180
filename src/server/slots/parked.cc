#include "server/slots/parked.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cairn::server {
namespace {
bool SameRequest(const wire::FrameHeader& a, const wire::FrameHeader& b) {
  // The mark of a round trip is for statistics: the copy of a frame need not have it.
  return a.type == b.type && ((a.flags ^ b.flags) & ~wire::kFlagTrip) == 0 && a.table == b.table &&
         a.round == b.round && a.entry_count == b.entry_count && a.key_count == b.key_count;
}
}  // namespace

ParkedRequest* ParkedRequests::Adopt(const wire::FrameHeader& header, ConnId conn) {
  auto known = by_request_.find(KeyOf(header));
  if (known == by_request_.end()) return nullptr;
  ParkedRequest& request = by_id_.at(known->second);
  if (!SameRequest(request.header, header)) {  // the number was used again for something else
    Remove(request.id);
    return nullptr;
  }
  request.conn = conn;
  return &request;
}

// A single request may be as large as a frame.
bool ParkedRequests::HasRoom(Incarnation client, uint64_t bytes) const {
  auto it = per_client_.find(client);
  return it == per_client_.end() ||
         (it->second.requests < kMaxPerClient && it->second.bytes + bytes <= kMaxBytesPerClient);
}

ParkedRequest& ParkedRequests::Add(ParkedRequest request) {
  request.id = next_id_++;
  const bool fresh = by_request_.emplace(KeyOf(request.header), request.id).second;
  CAIRN_CHECK(fresh);
  Load& load = per_client_[Incarnation{request.header.incarnation}];
  ++load.requests;
  load.bytes += request.storage.capacity();
  const ParkedId id = request.id;
  return by_id_.emplace(id, std::move(request)).first->second;
}

ParkedRequest* ParkedRequests::Find(ParkedId id) {
  auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &it->second;
}

void ParkedRequests::Remove(ParkedId id) {
  auto it = by_id_.find(id);
  if (it == by_id_.end()) return;
  by_request_.erase(KeyOf(it->second.header));
  Unload(it->second);
  by_id_.erase(it);
  CAIRN_CHECK(by_id_.size() == by_request_.size());
}

void ParkedRequests::Unload(const ParkedRequest& request) {
  auto load = per_client_.find(Incarnation{request.header.incarnation});
  CAIRN_CHECK(load != per_client_.end() && load->second.bytes >= request.storage.capacity());
  load->second.bytes -= request.storage.capacity();
  if (--load->second.requests == 0) per_client_.erase(load);
}

void ParkedRequests::ForgetConnection(ConnId conn) {
  for (auto& [id, request] : by_id_)
    if (request.conn == conn) request.conn = ConnId{};
}

void ParkedRequests::ForgetClient(Incarnation client) {
  auto it = by_request_.lower_bound(Key{client.value, 0});
  while (it != by_request_.end() && it->first.first == client.value) {
    const ParkedId id = it->second;
    ++it;
    Remove(id);
  }
}

std::vector<ParkedRequest> ParkedRequests::TakeAll() {
  std::vector<ParkedRequest> taken;
  for (auto& [id, request] : by_id_) taken.push_back(std::move(request));
  by_id_.clear();
  by_request_.clear();
  per_client_.clear();
  return taken;
}

std::vector<ParkedRequest> ParkedRequests::TakeTable(TableId table) {
  std::vector<ParkedId> ids;
  for (auto& [id, request] : by_id_)
    if (request.header.table == table.value) ids.push_back(id);
  std::vector<ParkedRequest> taken;
  for (ParkedId id : ids) {
    auto it = by_id_.find(id);
    by_request_.erase(KeyOf(it->second.header));
    Unload(it->second);
    taken.push_back(std::move(it->second));
    by_id_.erase(it);
  }
  return taken;
}

wire::StalledRound Stalled(TableId table, Round awaited, int64_t waited_us,
                           std::vector<uint32_t> missing_ranks) {
  const auto count = static_cast<uint32_t>(missing_ranks.size());
  const auto waited_ms = static_cast<uint32_t>(std::min<int64_t>(waited_us / 1000, UINT32_MAX));
  return {table, awaited, waited_ms, count, std::move(missing_ranks)};
}

}  // namespace cairn::server
