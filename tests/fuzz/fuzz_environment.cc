// Variables from outside: any text as any of the variables that environment.h reads. The input is
// lines NAME=VALUE; a line without '=' goes to the next known name in turn.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "base/check.h"
#include "cluster/environment/environment.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static constexpr const char* kNames[] = {"CAIRN_ROLE",
                                           "TRAINING_ROLE",
                                           "PADDLE_PSERVERS_IP_PORT_LIST",
                                           "POD_IP",
                                           "PADDLE_PORT",
                                           "PADDLE_TRAINER_ID",
                                           "CAIRN_SCHED_HOST",
                                           "CAIRN_SCHED_PORT",
                                           "CAIRN_RANK",
                                           "CAIRN_NUM_SERVERS",
                                           "MS_ROLE",
                                           "MS_SCHED_PORT",
                                           "DMLC_ROLE",
                                           "DMLC_RANK",
                                           "CAIRN_HEARTBEAT_MS",
                                           "CAIRN_DEADLOCK_AFTER_MS",
                                           "CAIRN_DEAD_AFTER_MS",
                                           "CAIRN_LOST_AFTER_MS",
                                           "PS_VERBOSE"};
  std::string_view text(reinterpret_cast<const char*>(data), size);
  cairn::cluster::Variables variables;
  size_t next = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      variables.insert_or_assign(kNames[next++ % std::size(kNames)], std::string(line));
    } else {
      variables.insert_or_assign(std::string(line.substr(0, equals)), std::string(line.substr(equals + 1)));
    }
  }
  const auto result = cairn::cluster::ReadEnvironment(variables);
  // What is accepted is complete in itself, and an error says something.
  if (!result.ok()) {
    CAIRN_CHECK(!result.status().message().empty());
  } else if (result->hosts_scheduler) {
    CAIRN_CHECK(result->rank == 0u && result->host == result->scheduler_host &&
                result->port == result->scheduler_port);
  }
  return 0;
}
