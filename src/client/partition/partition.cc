// From drafts to frames: type, flags, parameters, done marks.
#include "client/partition/partition.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "client/partition/check_input.h"
#include "client/partition/check_options.h"
#include "client/partition/dense_partition.h"
#include "client/partition/draft.h"
#include "client/partition/rounding.h"
#include "client/partition/routes.h"
#include "client/partition/sparse_partition.h"
#include "client/partition/table_facts.h"
#include "wire/coding.h"
#include "wire/data.h"

namespace cairn::client {
namespace {

uint16_t FlagsOf(const PartitionInput& input) {
  uint16_t flags = input.joined ? wire::kParamJoined : 0;
  if (input.weighted && !input.joined && input.phase != RoundPhase::kDecide) flags |= wire::kParamWeighted;
  if (input.phase == RoundPhase::kContribute) {
    flags |= wire::kParamTwoPhase | (input.not_finite ? wire::kParamNotFinite : 0);
  }
  // Who has joined agrees to every decision: it repeats its mark, and is answered when it is made.
  if (input.phase == RoundPhase::kDecide && !input.joined) {
    flags |= wire::kParamDecide | (input.skip ? wire::kParamSkip : 0);
  }
  return flags;
}

wire::PushParams ParamsOf(const PartitionInput& input) {
  wire::PushParams params;
  params.weight = input.joined ? 0 : input.weight;
  params.value_scale = input.value_scale;
  params.scale = input.scale;
  params.set_hyper(input.hyper);
  params.flags = FlagsOf(input);
  params.op = static_cast<uint8_t>(input.op);
  params.column = input.column;
  return params;
}

// As it is sent: empty for all segments, otherwise without bits beyond the last one.
RecycledVector<std::byte> MaskOf(const PartitionInput& input) {
  if (input.mask.empty()) return {};
  const size_t segments = SegmentCount(input.table->spec);
  RecycledVector<std::byte> mask((segments + 7) / 8);
  bool all = true;
  for (size_t s = 0; s < segments; ++s) {
    const bool in = InPush(input, s);
    all &= in;
    if (in) mask[s / 8] |= std::byte{1} << (s % 8);
  }
  return all ? RecycledVector<std::byte>() : mask;
}

// Routes in memory that is kept for the thread's next request, and taken out while it is used: whoever
// gets a part early may come here again.
class KeptRoutes {
 public:
  explicit KeptRoutes(const wire::ClusterState& state) : routes_(std::exchange(Kept(), {})) {
    routes_.Build(state);
  }
  KeptRoutes(const KeptRoutes&) = delete;
  KeptRoutes& operator=(const KeptRoutes&) = delete;
  ~KeptRoutes() { Kept() = std::move(routes_); }
  const Routes& operator*() const { return routes_; }

 private:
  static Routes& Kept() {
    thread_local Routes kept;
    return kept;
  }
  Routes routes_;
};

Result<Drafts> DraftAll(const PartitionInput& input, const Directions& what, BufferPool& pool,
                        const EarlyDraft& early = nullptr) {
  if (Status s = CheckInput(input, what); !s.ok()) return s;
  if (!what.push && !what.pull) return Drafts();
  if (input.table->spec.kind == TableKind::kDense) return DraftDense(input, what, pool);
  return DraftSparse(input, *KeptRoutes(*input.state), what, pool, early);
}

// Everything of a frame but its draft.
struct Envelope {
  wire::FrameType type = wire::FrameType::kPush;
  uint16_t flags = 0;
  const wire::PushParams* params = nullptr;
  std::span<const std::byte> done_bitmap;
  std::span<const std::byte> mask;
};

wire::DataParts PartsOf(const PartitionInput& input, const Envelope& envelope) {
  wire::DataParts parts;
  parts.type = envelope.type;
  parts.flags = envelope.flags;
  parts.state_version = input.state->version;
  parts.table = input.table->id;
  parts.params = envelope.params;
  parts.done_bitmap = envelope.done_bitmap;
  parts.mask = envelope.mask;
  parts.coding = wire::CodingOf(input.table->spec.wire);
  return parts;
}

void AddPart(Request& request, const PartitionInput& input, const Envelope& envelope, Draft draft,
             BufferPool& pool) {
  wire::DataParts parts = PartsOf(input, envelope);
  parts.entries = draft.entries;
  parts.keys = draft.keys;
  parts.owned = std::move(draft.owned);
  parts.values = std::move(draft.values);
  request.bytes += draft.keys.size_bytes();
  for (std::span<const std::byte> piece : parts.values) request.bytes += piece.size();
  draft.part.borrowed = parts.owned.empty() && !parts.values.empty();
  draft.part.frame = wire::EncodeData(std::move(parts), pool);
  request.parts.push_back(std::move(draft.part));
}

Status WrongMode(const PartitionInput& input, const char* is, const char* hint) {
  return {Code::kInvalidArgument, "table \"" + input.table->spec.name + "\" is " + is + ": " + hint};
}

// One bit for each slot that some draft has values for.
RecycledVector<std::byte> BitmapOf(const Drafts& drafts, size_t slot_count) {
  RecycledVector<std::byte> bitmap((slot_count + 7) / 8);
  for (const Draft& draft : drafts) {
    if (draft.values.empty()) continue;
    for (const wire::SlotEntry& entry : draft.entries) {
      bitmap[entry.slot / 8] |= std::byte{1} << (entry.slot % 8);
    }
  }
  return bitmap;
}

Request::Kind KindOf(RoundPhase phase) {
  switch (phase) {
    case RoundPhase::kWhole: break;
    case RoundPhase::kContribute: return Request::Kind::kContribute;
    case RoundPhase::kDecide: return Request::Kind::kDecide;
  }
  return Request::Kind::kRound;
}

// What is sent to all shard threads of a round, besides the drafts.
struct RoundFrames {
  const wire::PushParams params;
  const RecycledVector<std::byte> bitmap, mask;
};

// The next frame of a round: a part, with the mark if it is the last one for its shard thread.
Envelope EnvelopeOf(const RoundFrames& round, const Draft& draft, bool last) {
  Envelope envelope{.type = wire::FrameType::kDone, .params = &round.params};
  const bool values = !draft.values.empty();
  if (values) {
    envelope.type = wire::FrameType::kContribute;
    envelope.mask = round.mask;
    if (last) envelope.flags |= wire::kFlagDone;
  }
  if (last || !values) envelope.done_bitmap = round.bitmap;
  return envelope;
}

Request PullOf(const PartitionInput& input, Drafts drafts, BufferPool& pool) {
  Request request;
  request.kind = Request::Kind::kPull;
  request.table = input.table->id;
  Envelope envelope{.type = wire::FrameType::kPull};
  const TableSpec& spec = input.table->spec;
  const bool bounded = spec.staleness != kUnbounded && input.pull_column == 0;
  if (spec.mode == Mode::kSync || bounded) envelope.flags = wire::kFlagSyncPull;
  if (input.when_assigned) envelope.flags |= wire::kFlagAssigned;
  for (Draft& draft : drafts) AddPart(request, input, envelope, std::move(draft), pool);
  return request;
}

// Slots in one frame that asks for keys: a reply may be as large as a frame can be, and the client
// does not know how many rows there are.
constexpr uint32_t kKeySlots = 16;

}  // namespace

Result<Request> PreparePush(const PartitionInput& input, BufferPool& pool, const EarlyPart& early) {
  if (!IsNumbered(input.table->spec, input.op))
    return WrongMode(input, "synchronous", "its pushes are rounds");
  if (input.pull_after) {
    return WrongMode(input, "asynchronous", "a push-pull of it is a push followed by a pull");
  }
  if (Status s = CheckPushOptions(input, /*sync=*/false); !s.ok()) return s;
  const bool as_given = !ChangesValues(input);  // else what is wrong with them is found later
  const Directions what{.push = true, .borrow = input.borrow && as_given};
  const wire::PushParams params = ParamsOf(input);
  const RecycledVector<std::byte> mask = MaskOf(input);
  const Envelope envelope{.type = wire::FrameType::kPush, .params = &params, .mask = mask};
  const auto begin = [&] {
    Request request;
    request.kind = Request::Kind::kPush;
    request.table = input.table->id;
    return request;
  };
  Request request = begin();
  // One draft behind, so that the last one is left to return.
  const auto hand_over = [&](Draft draft) {
    if (!request.parts.empty()) early(std::exchange(request, begin()));
    AddPart(request, input, envelope, std::move(draft), pool);
  };
  Result<Drafts> drafts =
      DraftAll(input, what, pool, early && as_given ? EarlyDraft(std::ref(hand_over)) : nullptr);
  if (!drafts.ok()) return drafts.status();
  if (Status s = RoundDrafts(input, *drafts); !s.ok()) return s;
  for (Draft& draft : *drafts) AddPart(request, input, envelope, std::move(draft), pool);
  return request;
}

Result<Request> PrepareRound(const PartitionInput& input, BufferPool& pool) {
  if (input.table->spec.mode != Mode::kSync) return WrongMode(input, "asynchronous", "it has no rounds");
  if (Status s = CheckPushOptions(input, /*sync=*/true); !s.ok()) return s;
  const bool bare = input.joined || input.not_finite || input.phase == RoundPhase::kDecide;
  // Keys without rows are a mistake, not a bare done.
  const Directions what{.push = !bare && !(input.values.empty() && input.keys.empty()),
                        .pull = input.pull_after,
                        .borrow = !ChangesValues(input)};
  Result<Drafts> drafts = DraftAll(input, what, pool);
  if (!drafts.ok()) return drafts.status();
  if (Status s = RoundDrafts(input, *drafts); !s.ok()) return s;

  Request request;
  request.kind = KindOf(input.phase);
  request.table = input.table->id;
  request.joined = input.joined;
  const RoundFrames round{ParamsOf(input), BitmapOf(*drafts, input.state->slots.size()), MaskOf(input)};
  const uint16_t flags = what.pull ? wire::kFlagPullAfter : 0;
  request.mark = wire::EncodeData(PartsOf(input, EnvelopeOf(round, {}, true)), pool);
  size_t next = 0;
  const auto is_here = [&](size_t i, const wire::ServerInfo& server, uint32_t thread) {
    return i < drafts->size() && (*drafts)[i].part.server == server.index &&
           (*drafts)[i].part.thread == thread;
  };
  for (const wire::ServerInfo& server : input.state->servers) {
    for (uint32_t thread = 0; thread < server.threads; ++thread) {
      if (!is_here(next, server, thread)) {
        Draft done;
        done.part.server = static_cast<uint16_t>(server.index);
        done.part.thread = static_cast<uint16_t>(thread);
        const Envelope envelope = EnvelopeOf(round, done, true);
        AddPart(request, input, envelope, std::move(done), pool);
      }
      for (; is_here(next, server, thread); ++next) {
        Envelope envelope = EnvelopeOf(round, (*drafts)[next], !is_here(next + 1, server, thread));
        envelope.flags |= flags;
        AddPart(request, input, envelope, std::move((*drafts)[next]), pool);
      }
    }
  }
  return request;
}

Request PrepareClock(const wire::ClusterState& state, TableId table, bool last, BufferPool& pool) {
  Request request;
  request.kind = Request::Kind::kClock;
  request.table = table;
  for (const wire::ServerInfo& server : state.servers) {
    for (uint32_t thread = 0; thread < server.threads; ++thread) {
      ShardPart part;
      part.server = static_cast<uint16_t>(server.index);
      part.thread = static_cast<uint16_t>(thread);
      part.frame = wire::EncodeClock(table, state.version, last, pool);
      request.parts.push_back(std::move(part));
    }
  }
  return request;
}

Result<Request> PreparePull(const PartitionInput& input, BufferPool& pool) {
  if (Status s = CheckPullOptions(input); !s.ok()) return s;
  const Directions what{.pull = true, .column = input.pull_column};
  Result<Drafts> drafts = DraftAll(input, what, pool);
  if (!drafts.ok()) return drafts.status();
  return PullOf(input, std::move(*drafts), pool);
}

Result<Request> PrepareKeys(const PartitionInput& input, std::vector<RowKey>* keys, BufferPool& pool) {
  if (input.table->spec.kind != TableKind::kSparse)
    return Wrong(Named(*input.table) + " is dense: it has no keys");
  if (Status s = CheckInput(input, {}); !s.ok()) return s;
  const KeptRoutes kept(*input.state);
  const Routes& routes = *kept;
  Drafts drafts;
  for (const Routes::Thread& thread : routes.threads()) {
    for (uint32_t first = thread.first; first < thread.end; first += kKeySlots) {
      Draft& draft = drafts.emplace_back();
      draft.part.server = thread.server;
      draft.part.thread = thread.thread;
      draft.part.keys = keys;
      for (uint32_t i = first; i < std::min(thread.end, first + kKeySlots); ++i) {
        draft.entries.push_back({routes.slots()[i], 0, kKeyColumn});
      }
    }
  }
  return PullOf(input, std::move(drafts), pool);
}

}  // namespace cairn::client
