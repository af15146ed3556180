// Makes requests of what a lane pushes to one table, as the public client does it (client/runtime), with what
// the handle of a table keeps: what top-k has held back. Checkers see what was given and what is sent.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/random.h"
#include "client/partition/error_feedback.h"
#include "client/partition/partition.h"

namespace cairn::sim {

class WorkerProcess;

class RequestMaker {
 public:
  RequestMaker(WorkerProcess& worker, const TableSpec& spec);

  // Requests with some of their frames cut in two. That there is an error is reported.
  // A push: several where it is large enough to go in parts. `call`: PreparedEvent::call.
  Result<std::vector<client::Request>> Push(const client::PartitionInput& given, uint64_t call,
                                            Random& random);
  // The push of a push-pull: one.
  Result<client::Request> WholePush(const client::PartitionInput& given, uint64_t call, Random& random);
  Result<client::Request> Round(const client::PartitionInput& given, Random& random);
  // Gradients are chosen from: sums of them should be exact (OnGrid).
  bool chooses() const { return feedback_ != nullptr; }

 private:
  using Requests = std::vector<client::Request>;
  using Prepare = std::function<Result<Requests>(const client::PartitionInput&)>;
  Result<Requests> Make(const client::PartitionInput& given, uint64_t call, const Prepare& prepare,
                        Random& random);
  static Result<Requests> One(Result<client::Request> request);
  static Result<client::Request> One(Result<Requests> requests);
  // A call with a mistake in it, which is refused and must change nothing.
  void MakeWrong(client::PartitionInput given, const Prepare& prepare);
  void Tell(const client::PartitionInput& given, uint64_t call, const Requests* requests);

  WorkerProcess& worker_;
  const std::shared_ptr<client::ErrorFeedback> feedback_;
};

}  // namespace cairn::sim
