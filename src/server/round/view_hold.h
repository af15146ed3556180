// While a view is pending, rounds are held: per sync table, from the first round on that those who join could
// take part in here, as it was when this shard began to hold; frozen until the view is decided
// (docs/internals/consistency.md, rules 6 and 19). The shard's thread owns it.
#pragma once

#include <vector>

#include "base/ids.h"
#include "server/slots/owned_slots.h"
#include "server/slots/shard_context.h"
#include "server/slots/tables.h"
#include "wire/control.h"

namespace cairn::server {

class ViewHold {
 public:
  // All outlive it.
  ViewHold(const ShardContext& context, const OwnedSlots& slots, Tables& tables)
      : context_(context), slots_(slots), tables_(tables) {}

  // By the context's state, after slots and tables have been looked at.
  void Update();
  void Forget() { view_ = ViewNumber{0}; }   // the state that began it
  ViewNumber view() const { return view_; }  // 0: nothing is held
  const std::vector<wire::TableRound>& rounds() const { return rounds_; }

 private:
  const ShardContext& context_;
  const OwnedSlots& slots_;
  Tables& tables_;
  ViewNumber view_;
  std::vector<wire::TableRound> rounds_;
};

}  // namespace cairn::server
