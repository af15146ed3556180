// A Status becomes the exception of its name (cairn/errors.py). The GIL must be held.
#pragma once

#include <string>

#include "cairn/status.h"

namespace cairn::python {

// Raises cairn.errors.<name>(message).
[[noreturn]] void RaiseNamed(const char* name, const std::string& message);
[[noreturn]] void RaiseStatus(const Status& status);

inline void Check(const Status& status) {
  if (!status.ok()) RaiseStatus(status);
}

// The value, or the exception.
template <class T>
T Take(Result<T> result) {
  if (!result.ok()) RaiseStatus(result.status());
  return std::move(result).value();
}

}  // namespace cairn::python
