// How the fuzz targets of data frames take their input: as the bytes of a frame (so that golden
// files are seeds), with those fields set right that would only make the fuzzer fail early: magic,
// version, length, and the type where the target wants one of a few. Decoders are then called on
// the body directly; the checksum is fuzz_frame's matter.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <span>

#include "base/buffer.h"
#include "wire/frame.h"

// A property that a target checks; failing it is a finding.
#define FUZZ_EXPECT(condition) \
  ((condition) ? (void)0 : (std::fprintf(stderr, "not so: %s\n", #condition), std::abort()))

namespace cairn::fuzz {

inline BufferPool& Pool() {
  static BufferPool pool;
  return pool;
}

// False where nothing can be made of the input.
inline bool TakeFrame(const uint8_t* data, size_t size, std::initializer_list<wire::FrameType> types,
                      wire::InFrame* out) {
  if (size < sizeof(wire::FrameHeader)) return false;
  std::memcpy(&out->header, data, sizeof(wire::FrameHeader));
  const size_t body_bytes = size - sizeof(wire::FrameHeader);
  out->storage = Pool().Get(body_bytes);
  if (body_bytes != 0) std::memcpy(out->storage.data(), data + sizeof(wire::FrameHeader), body_bytes);
  out->header.magic = wire::kMagic;
  out->header.version = wire::kProtocolVersion;
  out->header.body_bytes = static_cast<uint32_t>(body_bytes);
  bool wanted = false;
  for (wire::FrameType type : types) wanted = wanted || out->header.type == type;
  if (!wanted) out->header.type = types.begin()[static_cast<size_t>(out->header.type) % types.size()];
  return wire::CheckHeader(out->header, wire::kMaxBodyBytes).ok();
}

inline bool SameBytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// What was decoded and encoded again has the bytes it came from.
inline void ExpectSameBody(const wire::Frame& frame, const wire::InFrame& in) {
  const Buffer bytes = wire::Flatten(frame, Pool());
  FUZZ_EXPECT(SameBytes(bytes.bytes().subspan(sizeof(wire::FrameHeader)), in.body()));
}
inline void ExpectSameFrame(const wire::Frame& frame, const wire::InFrame& in) {
  ExpectSameBody(frame, in);
  wire::FrameHeader now = frame.header(), then = in.header;
  now.checksum = then.checksum = 0;
  FUZZ_EXPECT(std::memcmp(&now, &then, sizeof(now)) == 0);
}

// The parts of a data frame that its header tells.
template <class Parts>
void CopyHeader(const wire::FrameHeader& header, Parts* parts) {
  parts->type = header.type;
  parts->flags = header.flags;
  parts->request_id = header.request_id;
  parts->incarnation = Incarnation{header.incarnation};
  parts->state_version = StateVersion{header.state_version};
  parts->round = Round{header.round};
  parts->table = TableId{header.table};
}

}  // namespace cairn::fuzz
