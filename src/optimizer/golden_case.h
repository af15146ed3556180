// What another program made of some steps of an optimizer: the lines of golden_torch.inc and
// golden_numpy.inc.
#pragma once

#include <cstdint>
#include <vector>

#include "optimizer/update.h"

namespace cairn::optimizer {

struct Golden {
  const char* name;
  OptimizerKind kind;
  uint32_t flags;
  float initial_state;
  Hyper hyper;
  std::vector<std::vector<float>> values;  // after each step
  std::vector<std::vector<float>> state;   // columns, after the last one
};

}  // namespace cairn::optimizer
