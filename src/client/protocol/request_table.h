// The requests under way, by id, and their deadlines. A request stays until its last frame is answered,
// even when its caller has been told that its deadline has passed. requests.h decides what becomes of them;
// where slots have moved, round_coverage.h and rerouting.h look all of them through. The core's thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/recycled.h"
#include "cairn/status.h"
#include "client/protocol/client_core.h"
#include "client/protocol/completions.h"
#include "client/protocol/round_reports.h"

namespace cairn::client {

// One frame of a request, by part.
struct FrameState {
  uint64_t id = 0;        // 0 once answered
  bool marks = false;     // carries this worker's mark of a round
  StateVersion answered;  // marks: the state that the answer was made under
};

struct RequestRecord {
  Request request;  // parts without their frames, which the links have
  bool sent = false;
  bool ended = false;  // its caller has been told
  bool parks = false;  // a round, or a pull of a sync table
  int64_t begun_us = 0;
  Round round;
  uint32_t unanswered = 0;
  RecycledVector<FrameState> frames;  // as many as parts, once sent
  uint64_t moves = 0;                 // pieces that its frames were cut into by new slot maps
  Status outcome;
  std::vector<uint32_t> missing_ranks;  // as a shard last said
  std::string waits_for;                // the same, of an answer that is held
  bool when_assigned = false;           // a pull that waits until somebody has assigned values
  RoundReports reports;                 // rounds: what the answers so far have said
  // Slots have moved, or an answer does not say enough: whether every slot is covered is looked at.
  bool doubtful = false;
  StateVersion newest_answer;  // if doubtful
};

class RequestTable {
 public:
  using Map = RecycledMap<uint64_t, RequestRecord>;

  explicit RequestTable(Completions& completions) : completions_(completions) {}

  // Ids rise. Requires that the deadline is set.
  uint64_t Add(RequestRecord record);
  // Requires that there is such a request.
  RequestRecord& At(uint64_t id) { return records_.at(id); }
  // Null if there is none.
  RequestRecord* Find(uint64_t id);
  void Erase(uint64_t id) { (void)Take(id); }
  // Takes it out. Requires that there is such a request.
  RequestRecord Take(uint64_t id);
  void Clear();

  // A request whose deadline has come, once; 0 if there is none.
  uint64_t NextDue(int64_t now_us);
  // It comes to no deadline any more.
  void ForgetDeadline(uint64_t id);
  // Ends the call, if it has not ended yet. The record stays.
  void TellCaller(RequestRecord& record, Status status);

  // In the order of ids.
  Map::iterator begin() { return records_.begin(); }
  Map::iterator end() { return records_.end(); }
  Map::const_iterator begin() const { return records_.begin(); }
  Map::const_iterator end() const { return records_.end(); }
  bool empty() const { return records_.empty(); }
  // Changes with every request.
  uint64_t next_id() const { return next_id_; }

 private:
  Completions& completions_;
  Map records_;
  RecycledSet<std::pair<int64_t, uint64_t>> deadlines_;
  uint64_t next_id_ = 1;
};

}  // namespace cairn::client
