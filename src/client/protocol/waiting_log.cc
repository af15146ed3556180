#include "client/protocol/waiting_log.h"

namespace cairn::client {

void WaitingLog::OnTick(int64_t now_us) {
  if (now_us < log_us_) return;
  log_us_ = now_us + every_us_;
  const int64_t since_us = now_us - every_us_;
  for (const auto& [id, record] : requests_) {
    if (record.ended || record.begun_us > since_us) continue;
    return log_(words_.LineOf(record, now_us));
  }
  const std::string call = calls_.Describe(since_us, now_us);
  if (!call.empty()) log_(words_.Who() + call);
}

}  // namespace cairn::client
