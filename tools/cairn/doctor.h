// The checks of `cairn doctor`. Each looks at one thing and says what to do about it.
#pragma once

#include <string>
#include <vector>

#include "cluster/environment/environment.h"

namespace cairn::tool {

enum class Health { kOk, kWarn, kFail };

struct Finding {
  Health health = Health::kOk;
  std::string name;    // "shared memory"
  std::string text;    // what was found
  std::string advice;  // what to do; empty if nothing
};

std::vector<Finding> CheckProgram(const cluster::Variables& variables,
                                  const std::string& self);  // cairn, Python
std::vector<Finding> CheckNetwork();
std::vector<Finding> CheckMachine();                                     // cores, memory, limits, clock
std::vector<Finding> CheckFolders(const cluster::Variables& variables);  // logs, jobs, temporary

}  // namespace cairn::tool
