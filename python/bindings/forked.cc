#include "forked.h"

#include <pthread.h>

#include <atomic>

#include "raising.h"

namespace cairn::python {
namespace {
std::atomic<int> running{0};
std::atomic<bool> forked{false};

void AfterForkInChild() {
  if (running.load() > 0) forked.store(true);
}
}  // namespace

void WatchForks() { pthread_atfork(nullptr, nullptr, AfterForkInChild); }
bool Forked() { return forked.load(std::memory_order_relaxed); }

void RefuseInForkedChild() {
  if (!Forked()) return;
  RaiseNamed("ForkedError",
             "this process was forked from one that had called cairn.init(), and has none of its "
             "connections: processes made by fork (the workers of a DataLoader, for example) can't "
             "call cairn. Do it in the process that called cairn.init(), or start the others before "
             "it does");
}

Running::Running() { running.fetch_add(1); }
Running::~Running() { running.fetch_sub(1); }

}  // namespace cairn::python
