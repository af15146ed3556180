// Makes requests of what a lane pushes to one table, as the public client does it (client/runtime), with what
// the handle of a table keeps: what top-k has held back. Checkers see what was given and what is sent.
#pragma once

#include <functional>
#include <memory>

#include "base/random.h"
#include "client/partition/error_feedback.h"
#include "client/partition/partition.h"

namespace cairn::sim {

class WorkerProcess;

class RequestMaker {
 public:
  RequestMaker(WorkerProcess& worker, const TableSpec& spec);

  // A request with some of its frames cut in two. That there is an error is reported.
  Result<client::Request> Push(const client::PartitionInput& given, Random& random);
  Result<client::Request> Round(const client::PartitionInput& given, Random& random);
  // Gradients are chosen from: sums of them should be exact (OnGrid).
  bool chooses() const { return feedback_ != nullptr; }

 private:
  using Prepare = std::function<Result<client::Request>(const client::PartitionInput&)>;
  Result<client::Request> Make(const client::PartitionInput& given, const Prepare& prepare, Random& random);
  // A call with a mistake in it, which is refused and must change nothing.
  void MakeWrong(client::PartitionInput given, const Prepare& prepare);
  void Tell(const client::PartitionInput& given, const client::Request* request);

  WorkerProcess& worker_;
  const std::shared_ptr<client::ErrorFeedback> feedback_;
};

}  // namespace cairn::sim
