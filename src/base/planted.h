// Planted bugs: the simulator proves its checkers by switching one on and expecting to catch it.
// CAIRN_BUG(name) is the constant false everywhere but in the simulator's own build of the roles
// (CAIRN_WITH_PLANTED_BUGS); `cairn` itself contains none of the switches.
#pragma once

#ifdef CAIRN_WITH_PLANTED_BUGS
namespace cairn::planted {
enum class Bug {
  kNone = 0,
#define CAIRN_PLANTED(name, rule, text) name,
#include "base/planted_bugs.inc"
#undef CAIRN_PLANTED
};
// The one that is switched on in this thread.
inline thread_local Bug active = Bug::kNone;
}  // namespace cairn::planted
#define CAIRN_BUG(name) (::cairn::planted::active == ::cairn::planted::Bug::name)
// Some bug is: what correct peers keep to may not hold.
#define CAIRN_ANY_BUG (::cairn::planted::active != ::cairn::planted::Bug::kNone)
#else
#define CAIRN_BUG(name) false
#define CAIRN_ANY_BUG false
#endif
