#include "server/round/view_hold.h"

#include <algorithm>

#include "base/planted.h"

namespace cairn::server {

void ViewHold::Update() {
  const ViewNumber pending = context_.state().pending_view;
  if (pending != view_) rounds_.clear();
  view_ = pending;
  const bool slots_came = slots_.totals().came;
  for (auto& [id, table] : tables_.all()) {
    if (!table.sync()) continue;
    if (view_ == ViewNumber{0} || CAIRN_BUG(kNoHold)) table.rounds.EndHold();
    if (view_ == ViewNumber{0} || table.rounds.empty()) continue;
    const Round highest = table.rounds.highest_open();
    Round start = table.rounds.Touched(slots_) ? highest.Next() : highest;
    auto said = std::find_if(rounds_.begin(), rounds_.end(),
                             [&, id = id](const wire::TableRound& r) { return r.table == id; });
    if (said == rounds_.end()) {
      rounds_.push_back({id, start});
    } else if (slots_came) {
      said->round = start = std::max(said->round, start);  // slots came here: never less
    } else {
      continue;
    }
    if (!CAIRN_BUG(kNoHold)) table.rounds.HoldFrom(start);
    if (slots_came && CAIRN_BUG(kHoldNotInherited)) table.rounds.EndHold();
  }
}

}  // namespace cairn::server
