#include "cluster/supervise/standstill_watch.h"

#include <utility>

namespace cairn::cluster {

StandstillWatch::News StandstillWatch::Next(const Answer& answer) {
  // Once the user was told, a server that is back but has not yet its copies is no news.
  const bool stands = answer.requests_wait && (answer.too_few_servers || answers_ >= kAnswers);
  if (!stands) return std::exchange(answers_, 0) >= kAnswers ? News::kGoesOn : News::kNone;
  return ++answers_ == kAnswers ? News::kStandsStill : News::kNone;
}

}  // namespace cairn::cluster
