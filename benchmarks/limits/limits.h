// What this machine can do, measured in the same process and minute as the figures that are
// compared with it. Every function takes a second or so, runs on the calling thread (loopback:
// and one more), and gives the median of a few repetitions. Linux. Include it as
// "limits/limits.h": its folder on the include path would hide the system's <limits.h>.
#pragma once

#include <string>

namespace bench {

// GB/s copied (bytes of the source, not the traffic of both sides) between arrays far larger than
// the cache.
double MemcpyGbPerSecond();
// GB/s of b in a += b over float arrays far larger than the cache: a dense push in process.
double AddGbPerSecond();
// GB/s through one TCP connection on loopback, written in 64 KiB pieces, 512 KiB socket buffers,
// read into a buffer that stays in the cache. NaN where sockets can't be had.
double LoopbackGbPerSecond();
// µs for 64 bytes there and back over loopback TCP, both sides blocking.
double LoopbackRoundTripUs();
// 64-byte rows at random places of 640 MB in huge pages, each read and added to, addresses known
// in advance: a sparse push without its index.
double RandomAddRowsPerSecond();
// The same, only read (copied out one after the other): a sparse pull without its index.
double RandomGatherRowsPerSecond();

struct Limits {
  double memcpy_gb_per_s = 0;
  double add_gb_per_s = 0;
  double loopback_gb_per_s = 0;
  double round_trip_us = 0;
  double random_add_rows_per_s = 0;
  double gather_rows_per_s = 0;
};
Limits MeasureLimits();
void PrintLimits(const Limits& limits);
std::string ToJson(const Limits& limits);

}  // namespace bench
