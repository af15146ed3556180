#include "limits/limits.h"

#include <cstdio>

namespace bench {

Limits MeasureLimits() {
  return {.memcpy_gb_per_s = MemcpyGbPerSecond(),
          .add_gb_per_s = AddGbPerSecond(),
          .loopback_gb_per_s = LoopbackGbPerSecond(),
          .round_trip_us = LoopbackRoundTripUs(),
          .random_add_rows_per_s = RandomAddRowsPerSecond(),
          .gather_rows_per_s = RandomGatherRowsPerSecond()};
}

void PrintLimits(const Limits& l) {
  std::printf("memcpy                 %8.2f GB/s\n", l.memcpy_gb_per_s);
  std::printf("a += b                 %8.2f GB/s\n", l.add_gb_per_s);
  std::printf("loopback TCP           %8.2f GB/s\n", l.loopback_gb_per_s);
  std::printf("loopback round trip    %8.1f us\n", l.round_trip_us);
  std::printf("random rows, add       %8.1f M rows/s of 64 bytes\n", l.random_add_rows_per_s * 1e-6);
  std::printf("random rows, gather    %8.1f M rows/s of 64 bytes\n", l.gather_rows_per_s * 1e-6);
}

std::string ToJson(const Limits& l) {
  char text[512];
  std::snprintf(text, sizeof(text),
                "{\"memcpy_gb_per_s\": %.3f, \"add_gb_per_s\": %.3f, \"loopback_gb_per_s\": %.3f, "
                "\"round_trip_us\": %.2f, \"random_add_rows_per_s\": %.0f, \"gather_rows_per_s\": %.0f}",
                l.memcpy_gb_per_s, l.add_gb_per_s, l.loopback_gb_per_s, l.round_trip_us,
                l.random_add_rows_per_s, l.gather_rows_per_s);
  return text;
}

}  // namespace bench
