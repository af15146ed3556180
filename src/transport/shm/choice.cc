#include "transport/shm/choice.h"

#include <cstdlib>
#include <string>
#include <string_view>

namespace cairn::transport {

Result<PipeChoice> ParsePipe(const char* transport, const char* users) {
  PipeChoice choice;
  const std::string_view kind = transport == nullptr ? "" : transport;
  if (kind == "tcp") {
    choice.kind = PipeKind::kTcp;
  } else if (kind == "shm") {
    choice.kind = PipeKind::kShm;
  } else if (!kind.empty() && kind != "auto") {
    return Status(Code::kInvalidArgument,
                  "CAIRN_TRANSPORT is \"" + std::string(kind) +
                      "\": it may be auto (shared memory on one host, else TCP), tcp or shm");
  }
  const std::string_view who = users == nullptr ? "" : users;
  if (who == "any") {
    choice.other_users = true;
  } else if (!who.empty() && who != "same") {
    return Status(Code::kInvalidArgument,
                  "CAIRN_SHM_USERS is \"" + std::string(who) +
                      "\": it may be same (share memory with processes of this user) or any");
  }
  return choice;
}

const Result<PipeChoice>& PipeFromEnvironment() {
  static const Result<PipeChoice> choice =
      ParsePipe(std::getenv("CAIRN_TRANSPORT"), std::getenv("CAIRN_SHM_USERS"));
  return choice;
}

}  // namespace cairn::transport
