// What passes between a launcher and its scheduler about single nodes: the launcher tells it which node has
// ended or does not come back, and asks what it knows of a node that has ended. Each call waits two seconds
// at most.
#pragma once

#include <string>

#include "cluster/supervise/process_end.h"
#include "cluster/supervise/supervise_action.h"
#include "node_processes.h"
#include "status_poller.h"
#include "wire/cluster_state.h"

namespace cairn::tool {

// kGiveUp, kEnded and kAbort. True: the scheduler has answered.
bool TellOf(const cluster::SuperviseAction& action, const wire::Endpoint& scheduler);

// What the scheduler knows of a node that has ended: a rank that is done may end as it likes, of a failed job
// the workers' errors are but the consequence, and a server may leave copies behind.
struct JudgedEnd {
  cluster::ProcessEnd end;
  std::string failure;  // why the job has failed; empty: it has not
};
// `last`: an earlier answer, for a server if there is none now; nullptr: there was none.
JudgedEnd JudgeEnd(NodeProcess& node, NodeProcesses& all, const wire::Endpoint& scheduler,
                   const ClusterSummary* last);

}  // namespace cairn::tool
