#include "request_maker.h"

#include <limits>

#include "client/partition/rounding.h"
#include "content.h"
#include "worker_process.h"

namespace cairn::sim {

RequestMaker::RequestMaker(WorkerProcess& worker, const TableSpec& spec)
    : worker_(worker), feedback_(client::ErrorFeedback::For(spec)) {}

Result<RequestMaker::Requests> RequestMaker::One(Result<client::Request> request) {
  if (!request.ok()) return request.status();
  Requests one;
  one.push_back(std::move(*request));
  return one;
}

Result<client::Request> RequestMaker::One(Result<Requests> requests) {
  if (!requests.ok()) return requests.status();
  return std::move(requests->front());
}

Result<RequestMaker::Requests> RequestMaker::Push(const client::PartitionInput& given, uint64_t call,
                                                  Random& random) {
  const auto prepare = [&](const client::PartitionInput& input) -> Result<Requests> {
    Requests parts;
    const auto early = [&](client::Request part) { parts.push_back(std::move(part)); };
    Result<client::Request> last = client::PreparePush(input, worker_.world().pool(), early);
    if (!last.ok()) return last.status();
    parts.push_back(std::move(*last));
    return parts;
  };
  return Make(given, call, prepare, random);
}

Result<client::Request> RequestMaker::WholePush(const client::PartitionInput& given, uint64_t call,
                                                Random& random) {
  BufferPool& pool = worker_.world().pool();
  const auto prepare = [&](const auto& input) { return One(client::PreparePush(input, pool)); };
  return One(Make(given, call, prepare, random));
}

Result<client::Request> RequestMaker::Round(const client::PartitionInput& given, Random& random) {
  BufferPool& pool = worker_.world().pool();
  const auto prepare = [&](const auto& input) { return One(client::PrepareRound(input, pool)); };
  return One(Make(given, 0, prepare, random));
}

Result<RequestMaker::Requests> RequestMaker::Make(const client::PartitionInput& given, uint64_t call,
                                                  const Prepare& prepare, Random& random) {
  if (feedback_ != nullptr && !given.values.empty() && random.Chance(0.1)) MakeWrong(given, prepare);
  client::PartitionInput input = given;
  client::ErrorFeedback::Chosen chosen = client::ChooseLargest(feedback_.get(), input);
  Result<Requests> requests = prepare(input);
  if (!requests.ok()) {
    worker_.world().context().report("outcomes", "a request can't be made: " + requests.status().ToString());
    return requests;
  }
  chosen.KeepRest();
  World& world = worker_.world();
  for (client::Request& request : *requests)
    CutFrames(request, given.table->spec, world.plan().split, random, world.pool());
  Tell(given, call, &*requests);
  return requests;
}

void RequestMaker::MakeWrong(client::PartitionInput given, const Prepare& prepare) {
  given.hyper.lr = std::numeric_limits<double>::quiet_NaN();
  client::PartitionInput input = given;
  const client::ErrorFeedback::Chosen chosen = client::ChooseLargest(feedback_.get(), input);
  if (prepare(input).ok())
    worker_.world().context().report("outcomes", "a push with a learning rate of NaN is taken over");
  Tell(given, 0, nullptr);
}

void RequestMaker::Tell(const client::PartitionInput& given, uint64_t call, const Requests* requests) {
  World& world = worker_.world();
  std::vector<PreparedFrame> frames;
  for (size_t r = 0; requests != nullptr && r < requests->size(); ++r) {
    for (const client::ShardPart& part : (*requests)[r].parts) {
      const wire::FrameHeader header = part.frame->header();
      const Buffer flat = wire::Flatten(*part.frame, world.pool());
      const auto body = flat.bytes().subspan(sizeof(header));
      frames.push_back({header, {body.begin(), body.end()}});
    }
  }
  const PreparedEvent event{.worker = worker_.number(),
                            .incarnation = worker_.core().incarnation(),
                            .call = call,
                            .given = given,
                            .frames = requests == nullptr ? nullptr : &frames};
  world.Tell([&](Checker& c) { c.OnPrepared(event); });
}

}  // namespace cairn::sim
