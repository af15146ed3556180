#include "own_address.h"

#include <optional>

#include "progress.h"
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

}  // namespace cairn::tool
