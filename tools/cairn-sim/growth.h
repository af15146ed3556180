// How the scheduler's work grows with the cluster: the real scheduler among light stand-ins for nodes.
#pragma once

namespace cairn::sim {

// 10, 100 and 1000 servers with ten times as many workers; prints a table. Not a test: figures only.
int RunGrowth();

}  // namespace cairn::sim
