#include "client/links/check_state.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cairn::client {
namespace {
constexpr size_t kMaxSlots = 65536;
constexpr uint32_t kMaxThreads = 1024;
}  // namespace

Status CheckState(const wire::ClusterState& state) {
  const auto bad = [](const char* what) {
    return Status(Code::kProtocol, std::string("bad state: ") + what);
  };
  if (state.slots.size() > kMaxSlots) return bad("too many slots");
  if (state.slots.empty()) return state.phase == wire::Phase::kRunning ? bad("no slots") : Status::Ok();
  std::vector<uint32_t> threads;  // by index of the server; 0: there is none
  for (const wire::ServerInfo& server : state.servers) {
    // Ascending; those of servers that are gone may be missing.
    if (server.index < threads.size() || server.index >= wire::kNoServer) return bad("server indexes");
    if (server.threads == 0 || server.threads > kMaxThreads) return bad("threads of a server");
    threads.resize(server.index + 1);
    threads[server.index] = server.threads;
  }
  for (const wire::SlotOwner& owner : state.slots) {
    if (owner.server >= threads.size() || owner.thread >= threads[owner.server]) {
      return bad("a slot's owner");
    }
  }
  return Status::Ok();
}

}  // namespace cairn::client
