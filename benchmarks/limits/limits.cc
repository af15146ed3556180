#include "limits/limits.h"

#include <cmath>
#include <cstdio>

namespace bench {
namespace {

// JSON has no NaN.
std::string Number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

}  // namespace

Limits MeasureLimits() {
  return {.memcpy_gb_per_s = MemcpyGbPerSecond(),
          .add_gb_per_s = AddGbPerSecond(),
          .loopback_gb_per_s = LoopbackGbPerSecond(),
          .loopback_push_gb_per_s = LoopbackPushGbPerSecond(),
          .unix_gb_per_s = UnixGbPerSecond(),
          .ring_gb_per_s = RingGbPerSecond(),
          .ring_sum_gb_per_s = RingSumGbPerSecond(),
          .ring_push_gb_per_s = RingPushGbPerSecond(),
          .round_trip_us = LoopbackRoundTripUs(),
          .loopback_ping_us = LoopbackPingUs(),
          .ring_ping_us = RingPingUs(),
          .random_add_rows_per_s = RandomAddRowsPerSecond(),
          .gather_rows_per_s = RandomGatherRowsPerSecond()};
}

void PrintLimits(const Limits& l) {
  std::printf("memcpy                 %8.2f GB/s\n", l.memcpy_gb_per_s);
  std::printf("a += b                 %8.2f GB/s\n", l.add_gb_per_s);
  std::printf("loopback TCP           %8.2f GB/s\n", l.loopback_gb_per_s);
  std::printf("one push at a time     %8.2f GB/s\n", l.loopback_push_gb_per_s);
  std::printf("Unix stream            %8.2f GB/s\n", l.unix_gb_per_s);
  std::printf("ring                   %8.2f GB/s\n", l.ring_gb_per_s);
  std::printf("ring with sum          %8.2f GB/s\n", l.ring_sum_gb_per_s);
  std::printf("one push at a time     %8.2f GB/s\n", l.ring_push_gb_per_s);
  std::printf("loopback round trip    %8.1f us, 64 bytes\n", l.round_trip_us);
  std::printf("loopback ping          %8.1f us, 4 KB there, 64 bytes back\n", l.loopback_ping_us);
  std::printf("ring ping              %8.1f us, 4 KB there, 64 bytes back\n", l.ring_ping_us);
  std::printf("random rows, add       %8.1f M rows/s of 64 bytes\n", l.random_add_rows_per_s * 1e-6);
  std::printf("random rows, gather    %8.1f M rows/s of 64 bytes\n", l.gather_rows_per_s * 1e-6);
}

std::string ToJson(const Limits& l) {
  return "{\"memcpy_gb_per_s\": " + Number(l.memcpy_gb_per_s) +
         ", \"add_gb_per_s\": " + Number(l.add_gb_per_s) +
         ", \"loopback_gb_per_s\": " + Number(l.loopback_gb_per_s) +
         ", \"loopback_push_gb_per_s\": " + Number(l.loopback_push_gb_per_s) +
         ", \"unix_gb_per_s\": " + Number(l.unix_gb_per_s) +
         ", \"ring_gb_per_s\": " + Number(l.ring_gb_per_s) +
         ", \"ring_sum_gb_per_s\": " + Number(l.ring_sum_gb_per_s) +
         ", \"ring_push_gb_per_s\": " + Number(l.ring_push_gb_per_s) +
         ", \"round_trip_us\": " + Number(l.round_trip_us) +
         ", \"loopback_ping_us\": " + Number(l.loopback_ping_us) +
         ", \"ring_ping_us\": " + Number(l.ring_ping_us) +
         ", \"random_add_rows_per_s\": " + Number(l.random_add_rows_per_s) +
         ", \"gather_rows_per_s\": " + Number(l.gather_rows_per_s) + "}";
}

}  // namespace bench
