#include "client/protocol/request_table.h"

#include "base/check.h"

namespace cairn::client {

uint64_t RequestTable::Add(RequestRecord record) {
  CAIRN_CHECK(!record.sent && !record.ended);
  const uint64_t id = next_id_++;
  deadlines_.emplace(record.request.deadline_us, id);
  records_.emplace(id, std::move(record));
  return id;
}

RequestRecord* RequestTable::Find(uint64_t id) {
  const auto it = records_.find(id);
  return it == records_.end() ? nullptr : &it->second;
}

RequestRecord RequestTable::Take(uint64_t id) {
  const auto it = records_.find(id);
  CAIRN_CHECK(it != records_.end());
  RequestRecord record = std::move(it->second);
  records_.erase(it);
  deadlines_.erase({record.request.deadline_us, id});
  return record;
}

void RequestTable::Clear() {
  records_.clear();
  deadlines_.clear();
}

uint64_t RequestTable::NextDue(int64_t now_us) {
  if (deadlines_.empty() || deadlines_.begin()->first > now_us) return 0;
  const uint64_t id = deadlines_.begin()->second;
  deadlines_.erase(deadlines_.begin());
  CAIRN_CHECK(records_.contains(id));
  return id;
}

void RequestTable::ForgetDeadline(uint64_t id) { deadlines_.erase({At(id).request.deadline_us, id}); }

void RequestTable::TellCaller(RequestRecord& record, Status status) {
  if (record.ended) return;
  record.ended = true;
  completions_.Add([done = std::move(record.request.done), status = std::move(status)]() mutable {
    if (done) done(std::move(status));
  });
}

}  // namespace cairn::client
