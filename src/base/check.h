// A broken invariant of our own crashes, in release too. Never used on bytes from a peer or a
// user's mistake: those are a Status.
#pragma once

namespace cairn {
[[noreturn]] void CheckFailed(const char* what, const char* file, int line);
}  // namespace cairn

#define CAIRN_CHECK(condition) \
  (__builtin_expect(!!(condition), 1) ? (void)0 : ::cairn::CheckFailed(#condition, __FILE__, __LINE__))
