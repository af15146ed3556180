// Which Python runs a script: the one that the user means, not the first one that is found.
#pragma once

#include <string>

#include "cairn/status.h"
#include "cluster/environment/environment.h"

namespace cairn::tool {

struct PythonChoice {
  std::string program;  // a path; not resolved, since a virtual environment's is a link
  std::string why;      // "$CAIRN_PYTHON", "$VIRTUAL_ENV", "beside cairn", "on PATH"
};

// $CAIRN_PYTHON; the active virtual environment's; the one beside `self` (this binary, which may
// have come in a wheel); python3 on PATH. An error says what to do.
Result<PythonChoice> ChoosePython(const cluster::Variables& variables, const std::string& self);

// The first executable file `name` of PATH, or `name` itself if it has a slash. Empty: none.
std::string OnPath(const cluster::Variables& variables, const std::string& name);

}  // namespace cairn::tool
