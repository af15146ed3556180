#include "request_maker.h"

#include <limits>

#include "client/partition/rounding.h"
#include "content.h"
#include "worker_process.h"

namespace cairn::sim {

RequestMaker::RequestMaker(WorkerProcess& worker, const TableSpec& spec)
    : worker_(worker), feedback_(client::ErrorFeedback::For(spec)) {}

Result<client::Request> RequestMaker::Push(const client::PartitionInput& given, Random& random) {
  BufferPool& pool = worker_.world().pool();
  const auto prepare = [&](const auto& input) { return client::PreparePush(input, pool); };
  return Make(given, prepare, random);
}

Result<client::Request> RequestMaker::Round(const client::PartitionInput& given, Random& random) {
  BufferPool& pool = worker_.world().pool();
  const auto prepare = [&](const auto& input) { return client::PrepareRound(input, pool); };
  return Make(given, prepare, random);
}

Result<client::Request> RequestMaker::Make(const client::PartitionInput& given, const Prepare& prepare,
                                           Random& random) {
  if (feedback_ != nullptr && !given.values.empty() && random.Chance(0.1)) MakeWrong(given, prepare);
  client::PartitionInput input = given;
  client::ErrorFeedback::Chosen chosen = client::ChooseLargest(feedback_.get(), input);
  Result<client::Request> request = prepare(input);
  if (!request.ok()) {
    worker_.world().context().report("outcomes", "a request can't be made: " + request.status().ToString());
    return request;
  }
  chosen.KeepRest();
  World& world = worker_.world();
  CutFrames(*request, given.table->spec, world.plan().split, random, world.pool());
  Tell(given, &*request);
  return request;
}

void RequestMaker::MakeWrong(client::PartitionInput given, const Prepare& prepare) {
  given.hyper.lr = std::numeric_limits<double>::quiet_NaN();
  client::PartitionInput input = given;
  const client::ErrorFeedback::Chosen chosen = client::ChooseLargest(feedback_.get(), input);
  if (prepare(input).ok())
    worker_.world().context().report("outcomes", "a push with a learning rate of NaN is taken over");
  Tell(given, nullptr);
}

void RequestMaker::Tell(const client::PartitionInput& given, const client::Request* request) {
  const PreparedEvent event{worker_.number(), worker_.core().incarnation(), given, request};
  worker_.world().Tell([&](Checker& c) { c.OnPrepared(event); });
}

}  // namespace cairn::sim
