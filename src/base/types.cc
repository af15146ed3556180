// Which state arrays a table of each optimizer keeps (cairn/types.h). Below all roles: clients and
// servers must count the same.
#include "cairn/types.h"

namespace cairn {

uint32_t StateColumns(OptimizerKind kind, uint32_t flags) {
  const auto has = [flags](OptimizerFlag flag) -> uint32_t { return (flags & flag) != 0 ? 1 : 0; };
  switch (kind) {
    case OptimizerKind::kSum:
    case OptimizerKind::kMean:
    case OptimizerKind::kFirst: return 0;
    case OptimizerKind::kSgd: return has(kWithMomentum);
    case OptimizerKind::kAdagrad:
    case OptimizerKind::kRowwiseAdagrad: return 1;
    case OptimizerKind::kSparseAdam:
    case OptimizerKind::kFtrl: return 2;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW: return 2 + has(kAmsgrad);
    case OptimizerKind::kRmsprop: return 1 + has(kWithMomentum) + has(kCentered);
  }
  return 0;
}

}  // namespace cairn
