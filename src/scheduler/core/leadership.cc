#include "scheduler/core/leadership.h"

#include <utility>

#include "base/planted.h"

namespace cairn::scheduler {

void Leadership::OnWon() {
  leads_ = true;
  if (!CAIRN_BUG(kAwayForEver)) away_ = false;
  resigned_ = false;
}

bool Leadership::OnEtcd(bool heard) {
  if (!leads_ && !CAIRN_BUG(kAwayForEver)) return false;
  return std::exchange(away_, !heard) == heard;
}

void Leadership::Resign(int64_t now_us) {
  leads_ = away_ = false;
  resigned_ = true;
  resigned_us_ = now_us;
}

bool Leadership::OnFound() { return std::exchange(resigned_, false); }

bool Leadership::OnTick(int64_t now_us) {
  if (!resigned_ || now_us - resigned_us_ < lost_after_us_) return false;
  return OnFound();
}

}  // namespace cairn::scheduler
