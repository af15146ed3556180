#include "scheduler/metastore/candidacy.h"

#include <utility>

#include "base/check.h"
#include "base/planted.h"

namespace cairn::scheduler {
namespace {
constexpr int64_t kCampaignEveryUs = 300'000;
constexpr int64_t kTryAgainAfterUs = 200'000;
constexpr int64_t kComplainEveryUs = 10'000'000;
}  // namespace

Candidacy::Candidacy(EtcdElection& election, Options options, Listener& listener, const LogLine& log)
    : election_(election), options_(std::move(options)), listener_(listener), log_(log) {}

int64_t Candidacy::Step(bool stands) {
  if (lost_) return kNever;
  if (!stands) return StandBack();
  return leads_ ? KeepAlive() : Campaign();
}

int64_t Candidacy::StandBack() {
  if (std::exchange(leads_, false)) election_.Resign();
  away_ = false;
  return kCampaignEveryUs;
}

int64_t Candidacy::Campaign() {
  CAIRN_CHECK(!leads_ && !away_);
  const int64_t asked_us = options_.now_us();
  const Result<EtcdElection::Standing> standing = election_.Campaign();
  if (!standing.ok()) {
    Complain(standing.status());
    return kTryAgainAfterUs;
  }
  complained_us_.reset();
  if (standing->revision == 0) {
    listener_.OnStandby(standing->leader);
    return kCampaignEveryUs;
  }
  leads_ = true;
  heard_us_ = asked_us;
  listener_.OnWon(standing->revision);
  return 0;
}

int64_t Candidacy::KeepAlive() {
  const int64_t asked_us = options_.now_us();
  const Result<bool> leads = election_.KeepAlive();
  if (leads.ok() && !*leads) {
    lost_ = true;
    listener_.OnLost({Code::kRetired,
                      "this scheduler no longer leads: etcd did not hear it in time, and its lease ended; "
                      "start it again, it will be a standby"});
    return kNever;
  }
  if (leads.ok()) {
    heard_us_ = asked_us;
    complained_us_.reset();
    if (std::exchange(away_, false)) listener_.OnEtcd(true);
    return options_.ttl_us / 3;
  }
  if (options_.stopping()) return 0;
  if (!away_ && options_.now_us() - heard_us_ >= options_.ttl_us && !CAIRN_BUG(kSilenceNotTold)) {
    away_ = true;
    listener_.OnEtcd(false);
  }
  Complain(leads.status());
  return kTryAgainAfterUs;
}

void Candidacy::Complain(const Status& error) {
  const int64_t now_us = options_.now_us();
  if (options_.stopping() || (complained_us_ && now_us - *complained_us_ < kComplainEveryUs)) return;
  complained_us_ = now_us;
  log_(error.message());
}

}  // namespace cairn::scheduler
