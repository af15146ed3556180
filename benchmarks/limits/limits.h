// What this machine can do, measured in the same minute as the figures that are compared with it.
// Every function takes a second or so, runs on the calling thread and at most one more thread or
// process, and gives the median of a few repetitions; where a figure has several settings, the best
// of their medians, since a limit is what nobody can beat. Linux. Include it as "limits/limits.h":
// its folder on the include path would hide the system's <limits.h>.
//
// Ring* fork: call them while the process has no other threads.
#pragma once

#include <string>

namespace bench {

// GB/s copied (bytes of the source, not the traffic of both sides) between arrays far larger than
// the cache.
double MemcpyGbPerSecond();
// GB/s of b in a += b over float arrays far larger than the cache: a dense push in process.
double AddGbPerSecond();

// GB/s through one TCP connection on loopback, from and to buffers that stay in the cache: the best of
// pieces of 64 KiB to 1 MiB and of three sizes of the socket's buffers. NaN where sockets can't be had.
double LoopbackGbPerSecond();
// The same through a Unix stream socket.
double UnixGbPerSecond();
// One push of 16 MB at a time over TCP, as RingPush: checked whole, sent, summed, answered.
double LoopbackPushGbPerSecond();
// µs for 64 bytes there and back over loopback TCP, both sides blocking.
double LoopbackRoundTripUs();
// µs for 4 KB there and 64 bytes back over loopback TCP, as a small push has it; the better one of
// blocking and of looking again and again.
double LoopbackPingUs();

// GB/s from an array of 16 MB through a ring of 2 MiB that two processes share, in 64 KiB pieces,
// each copied into a private buffer that stays in the cache.
double RingGbPerSecond();
// The same, and the receiver checks that every value is finite while it copies, and adds the piece to
// an array of 16 MB: what a dense push through shared memory can't do without.
double RingSumGbPerSecond();
// One push of 16 MB at a time: the sender checks that all of it is finite before the first byte leaves
// (a push is refused whole), then as RingSum, then an answer of 64 bytes.
double RingPushGbPerSecond();
// µs for 4 KB there and 64 bytes back through two such rings.
double RingPingUs();

// 64-byte rows at random places of 640 MB in huge pages, each read and added to, addresses known
// in advance: a sparse push without its index.
double RandomAddRowsPerSecond();
// The same, only read (copied out one after the other): a sparse pull without its index.
double RandomGatherRowsPerSecond();

struct Limits {
  double memcpy_gb_per_s = 0;
  double add_gb_per_s = 0;
  double loopback_gb_per_s = 0;
  double loopback_push_gb_per_s = 0;
  double unix_gb_per_s = 0;
  double ring_gb_per_s = 0;
  double ring_sum_gb_per_s = 0;
  double ring_push_gb_per_s = 0;
  double round_trip_us = 0;
  double loopback_ping_us = 0;
  double ring_ping_us = 0;
  double random_add_rows_per_s = 0;
  double gather_rows_per_s = 0;
};
Limits MeasureLimits();
void PrintLimits(const Limits& limits);
std::string ToJson(const Limits& limits);

}  // namespace bench
