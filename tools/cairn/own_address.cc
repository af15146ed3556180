#include "own_address.h"

#include <optional>

#include "progress.h"
#include "scheduler/core/reachable.h"
#include "status_poller.h"
#include "transport/tcp/sockets.h"

namespace cairn::tool {

Result<std::string> AwaitOwnAddress(const std::vector<wire::Endpoint>& schedulers, const AddressWait& wait) {
  constexpr int64_t kAgainMs = 500, kSayEveryMs = 10'000;
  const int64_t begin_ms = MonotonicMs();
  std::optional<int64_t> said_ms;
  while (true) {
    std::string why;
    for (const wire::Endpoint& scheduler : schedulers) {
      Result<std::string> address = transport::LocalAddressTowards(scheduler);
      if (address.ok()) return address;
      why += (why.empty() ? "" : "; ") + address.status().message();
    }
    const int64_t now_ms = MonotonicMs();
    if (now_ms - begin_ms >= wait.timeout_ms)
      return Status(Code::kDeadlineExceeded, why + ", for " + Seconds(wait.timeout_ms));
    if (!said_ms || now_ms - *said_ms >= kSayEveryMs) {
      wait.log(why + "; waiting for it");
      said_ms = now_ms;
    }
    if (!wait.pause(kAgainMs)) return Status(Code::kUnavailable, why);
  }
}

Status ExplainOwnNames(OwnNames& names, const std::function<void(const std::string&)>& log) {
  const bool told = !names.advertise.empty();
  if (told && transport::IsWildcard(names.advertise)) {
    return {Code::kInvalidArgument,
            "--advertise " + names.advertise +
                " is no address that others can reach: give that of this machine, or of the "
                "proxy before it"};
  }
  const std::string& name = told ? names.advertise : names.host;
  if (transport::IsWildcard(name)) return Status::Ok();
  const Result<std::string> address = transport::AddressOf(name);
  if (!address.ok()) {  // listening will fail and say so, if it is to listen there
    if (told)
      log("others are told the name " + name +
          ", which this machine doesn't know: " + address.status().message());
    return Status::Ok();
  }
  if (!scheduler::IsLoopbackHost(*address) || *address == name) return Status::Ok();
  log(name + " is " + *address + " on this machine, which only processes of this machine can reach" +
      (told ? ": others must know it by another address" : ""));
  if (!told) names.advertise = *address;
  return Status::Ok();
}

}  // namespace cairn::tool
