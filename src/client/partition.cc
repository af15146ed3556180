// From drafts to frames: type, flags, parameters, done marks.
#include "client/partition.h"

#include <string>
#include <utility>

#include "client/draft.h"
#include "client/routes.h"
#include "wire/data.h"

namespace cairn::client {
namespace {

wire::PushParams ParamsOf(const PartitionInput& input) {
  wire::PushParams params;
  params.weight = input.weight;
  params.lr = input.hyper.lr;
  params.weight_decay = input.hyper.weight_decay;
  return params;
}

Result<std::vector<Draft>> DraftAll(const PartitionInput& input, const Routes& routes, const Directions& what,
                                    BufferPool& pool) {
  if (Status s = CheckInput(input, what); !s.ok()) return s;
  if (!what.push && !what.pull) return std::vector<Draft>();
  return input.table->spec.kind == TableKind::kDense ? DraftDense(input, routes, what, pool)
                                                     : DraftSparse(input, routes, what, pool);
}

// Everything of a frame but its draft.
struct Envelope {
  wire::FrameType type = wire::FrameType::kPush;
  uint16_t flags = 0;
  const wire::PushParams* params = nullptr;
  std::span<const std::byte> done_bitmap;
};

void AddPart(Request& request, const PartitionInput& input, const Envelope& envelope, Draft draft,
             BufferPool& pool) {
  wire::DataParts parts;
  parts.type = envelope.type;
  parts.flags = envelope.flags;
  parts.state_version = input.state->version;
  parts.table = input.table->id;
  parts.params = envelope.params;
  parts.entries = draft.entries;
  parts.done_bitmap = envelope.done_bitmap;
  parts.keys = draft.keys;
  parts.owned = std::move(draft.owned);
  parts.values = std::move(draft.values);
  request.bytes += draft.keys.size_bytes();
  for (std::span<const std::byte> piece : parts.values) request.bytes += piece.size();
  draft.part.frame = wire::EncodeData(std::move(parts), pool);
  request.parts.push_back(std::move(draft.part));
}

const Routes& RoutesOf(const wire::ClusterState& state) {
  thread_local Routes routes;  // memory for the next request of this thread
  routes.Build(state);
  return routes;
}

Status WrongMode(const PartitionInput& input, const char* is, const char* hint) {
  return {Code::kInvalidArgument, "table \"" + input.table->spec.name + "\" is " + is + ": " + hint};
}

// One bit for each slot that some draft names.
std::vector<std::byte> BitmapOf(const std::vector<Draft>& drafts, size_t slot_count) {
  std::vector<std::byte> bitmap((slot_count + 7) / 8);
  for (const Draft& draft : drafts) {
    for (const wire::SlotEntry& entry : draft.entries) {
      bitmap[entry.slot / 8] |= std::byte{1} << (entry.slot % 8);
    }
  }
  return bitmap;
}

}  // namespace

Result<Request> PreparePush(const PartitionInput& input, BufferPool& pool) {
  if (input.table->spec.mode != Mode::kAsync) return WrongMode(input, "synchronous", "its pushes are rounds");
  if (input.pull_after) {
    return WrongMode(input, "asynchronous", "a push-pull of it is a push followed by a pull");
  }
  const Directions what{.push = true};
  const Routes& routes = RoutesOf(*input.state);
  Result<std::vector<Draft>> drafts = DraftAll(input, routes, what, pool);
  if (!drafts.ok()) return drafts.status();
  Request request;
  request.kind = Request::Kind::kPush;
  request.table = input.table->id;
  const wire::PushParams params = ParamsOf(input);
  const Envelope envelope{.type = wire::FrameType::kPush, .params = &params};
  for (Draft& draft : *drafts) AddPart(request, input, envelope, std::move(draft), pool);
  return request;
}

Result<Request> PrepareRound(const PartitionInput& input, BufferPool& pool) {
  if (input.table->spec.mode != Mode::kSync) return WrongMode(input, "asynchronous", "it has no rounds");
  Directions what{.push = !input.values.empty(), .borrow = true};
  // Keys without rows are a mistake, not a bare done.
  if (!what.push && !input.keys.empty()) what.push = true;
  what.pull = what.push && input.pull_after;
  const Routes& routes = RoutesOf(*input.state);
  Result<std::vector<Draft>> drafts = DraftAll(input, routes, what, pool);
  if (!drafts.ok()) return drafts.status();

  Request request;
  request.kind = Request::Kind::kRound;
  request.table = input.table->id;
  const wire::PushParams params = ParamsOf(input);
  const std::vector<std::byte> bitmap = BitmapOf(*drafts, input.state->slots.size());
  size_t next = 0;
  for (const Routes::Thread& thread : routes.threads()) {
    const auto is_here = [&](size_t i) {
      return i < drafts->size() && (*drafts)[i].part.server == thread.server &&
             (*drafts)[i].part.thread == thread.thread;
    };
    if (!is_here(next)) {
      Draft done;
      done.part.server = thread.server;
      done.part.thread = thread.thread;
      AddPart(request, input, {.type = wire::FrameType::kDone, .params = &params, .done_bitmap = bitmap},
              std::move(done), pool);
    }
    for (; is_here(next); ++next) {
      Envelope envelope{.type = wire::FrameType::kContribute, .params = &params};
      if (what.pull) envelope.flags |= wire::kFlagPullAfter;
      if (!is_here(next + 1)) {
        envelope.flags |= wire::kFlagDone;
        envelope.done_bitmap = bitmap;
      }
      AddPart(request, input, envelope, std::move((*drafts)[next]), pool);
    }
  }
  return request;
}

Result<Request> PreparePull(const PartitionInput& input, BufferPool& pool) {
  const Directions what{.pull = true};
  const Routes& routes = RoutesOf(*input.state);
  Result<std::vector<Draft>> drafts = DraftAll(input, routes, what, pool);
  if (!drafts.ok()) return drafts.status();
  Request request;
  request.kind = Request::Kind::kPull;
  request.table = input.table->id;
  Envelope envelope{.type = wire::FrameType::kPull};
  if (input.table->spec.mode == Mode::kSync) envelope.flags = wire::kFlagSyncPull;
  for (Draft& draft : *drafts) AddPart(request, input, envelope, std::move(draft), pool);
  return request;
}

}  // namespace cairn::client
