// What a forked child may do with this module: nothing. A child has copies of our objects and none
// of our threads, so that every call raises cairn.ForkedError and destructors leave their objects
// as they are. A process that forks before anything was started is not concerned.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

namespace cairn::python {

// Registers the handler; once, when the module is loaded.
void WatchForks();
// True in a child that was forked while its parent had a client or a cluster.
bool Forked();
// Raises cairn.ForkedError in such a child. The GIL must be held.
void RefuseInForkedChild();

// One for every object that has threads of ours behind it.
class Running {
 public:
  Running();
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

// Deletes with the GIL released; in a forked child it leaks, deliberately. The GIL must be held.
struct DeleteUnlessForked {
  template <class T>
  void operator()(T* object) const {
    if (Forked()) return;
    nanobind::gil_scoped_release released;
    delete object;
  }
};
template <class T>
using Owned = std::unique_ptr<T, DeleteUnlessForked>;

}  // namespace cairn::python
