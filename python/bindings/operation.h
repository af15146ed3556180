// cairn._core.Pending: an operation under way, with all that it uses.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cairn/client.h"

namespace cairn::python {

// What must stay where it is until the operation has ended.
struct Operation {
  std::vector<std::span<const float>> in;
  std::vector<std::span<float>> out;
  std::string mask;
  RoundInfo info;
  nanobind::object keep;  // the tensors, whose memory is used
  Pending pending;        // last: it ends first
};

// Dropping one never waits: if the operation still uses the caller's tensors, they are kept until
// it has ended (a KeyboardInterrupt must not wait for what it interrupts). All under the GIL.
class PyPending {
 public:
  // `detached`: the operation uses none of the caller's memory any more.
  PyPending(std::unique_ptr<Operation> operation, bool detached);
  PyPending(PyPending&&) noexcept = default;
  ~PyPending();

  void Wait();  // raises the exception of its status
  bool WaitFor(int64_t milliseconds);
  bool ready() const;
  const RoundInfo& info() const { return operation_->info; }

 private:
  std::unique_ptr<Operation> operation_;
  const bool detached_;
};

// Lets go of dropped operations that have ended meanwhile.
void SweepDropped();
void BindPending(nanobind::module_& m);

}  // namespace cairn::python
