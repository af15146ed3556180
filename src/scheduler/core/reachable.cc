#include "scheduler/core/reachable.h"

namespace cairn::scheduler {

bool IsLoopbackHost(const std::string& host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost" || host.starts_with("::ffff:127.");
}

Status CheckReachable(const wire::Register& request, bool same_host) {
  if (request.role != wire::Role::kServer || same_host || !IsLoopbackHost(request.endpoint.host))
    return Status::Ok();
  return {
      Code::kInvalidArgument,
      "this server says that it is at " + ToString(request.endpoint) +
          ", but it comes from another machine than the scheduler's, and nobody else can reach a loopback "
          "address: start it with --host (or CAIRN_HOST) and the address of its machine, or with --advertise "
          "where something forwards to it"};
}

}  // namespace cairn::scheduler
