// The words of the progress line and of the summary: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "status_poller.h"

namespace cairn::tool {

struct ProgressView {
  int64_t elapsed_ms = 0;
  bool silent = false;        // the scheduler has not answered lately
  StatusPoller::Answer last;  // without a summary: nothing is known yet
  double rounds_per_s = 0;
};

// "[cairn] 0:42  2 servers 2 workers  round 118  23.1 rounds/s  12.3 MB/s"
std::string ProgressLine(const ProgressView& view);

std::string Counted(uint64_t count, const std::string& what);       // "1 worker", "2 workers"
std::string ClockTime(int64_t ms);                                  // "0:42", "1:02:03"
std::string Seconds(int64_t ms);                                    // "12.3 s", "1:02:03" from a minute on
std::string ByteRate(double per_second);                            // "12.3 MB/s"
std::string CountRate(double per_second, const std::string& what);  // "1.2k pushes/s"

}  // namespace cairn::tool
