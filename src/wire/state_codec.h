// The parts that control messages and the scheduler's log share: packing a ClusterState and a
// TableSpec into FlatBuffers and back. Internal to the wire layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/status.h"
#include "wire/cluster_state.h"
#include "wire/control_generated.h"

namespace cairn::wire {

inline constexpr char kControlIdentifier[] = "CRNC";
inline constexpr char kStateIdentifier[] = "CRNS";

// What a decoder may still copy out of one buffer. FlatBuffers lets many offsets share one string
// or vector, so a small buffer could unfold into a huge structure. Our encoders share nothing:
// what is honest never copies more bytes than the buffer has.
class Budget {
 public:
  explicit Budget(size_t bytes) : left_(bytes) {}
  // False, now and from here on, when it is spent.
  bool Take(size_t count, size_t bytes_each) {
    if (count > left_ / bytes_each) left_ = 0, spent_ = true;
    if (!spent_) left_ -= count * bytes_each;
    return !spent_;
  }
  // The same for a vector of structs or numbers. FlatBuffers' verifier does not look at their alignment.
  template <class T>
  bool TakeStructs(const flatbuffers::Vector<const T*>& structs) {
    return TakeAligned<T>(structs.Data(), structs.size());
  }
  template <class T>
  bool TakeNumbers(const flatbuffers::Vector<T>& numbers) {
    return TakeAligned<T>(numbers.Data(), numbers.size());
  }
  bool spent() const { return spent_; }

 private:
  template <class T>
  bool TakeAligned(const uint8_t* data, size_t count) {
    if (count != 0 && reinterpret_cast<uintptr_t>(data) % alignof(T) != 0) spent_ = true;
    return Take(count, sizeof(T));
  }

  size_t left_;
  bool spent_ = false;
};

inline Status BadControl(std::string text) {
  return {Code::kProtocol, "bad control message: " + std::move(text)};
}

// What would go from a peer's message into the state is bounded one by one, or a few peers could
// make the state too large to send.
inline Status CheckLength(std::string_view what, size_t bytes, size_t limit) {
  if (bytes <= limit) return Status::Ok();
  return BadControl(std::string(what) + " of " + std::to_string(bytes) + " bytes, at most " +
                    std::to_string(limit) + " are allowed");
}

// An absent string or vector is an empty one.
inline flatbuffers::Offset<flatbuffers::String> PackString(flatbuffers::FlatBufferBuilder& b,
                                                           std::string_view s) {
  return s.empty() ? flatbuffers::Offset<flatbuffers::String>() : b.CreateString(s.data(), s.size());
}
inline std::string UnpackString(const flatbuffers::String* s, Budget& budget) {
  if (s == nullptr || !budget.Take(s->size(), 1)) return {};
  return {s->c_str(), s->size()};
}

flatbuffers::Offset<flatbuffers::Vector<const fb::TableRound*>> PackRounds(
    flatbuffers::FlatBufferBuilder& b, const std::vector<TableRound>& rounds);
std::vector<TableRound> UnpackRounds(const flatbuffers::Vector<const fb::TableRound*>* rounds,
                                     Budget& budget);
flatbuffers::Offset<flatbuffers::Vector<uint32_t>> PackNumbers(flatbuffers::FlatBufferBuilder& b,
                                                               const std::vector<uint32_t>& numbers);
std::vector<uint32_t> UnpackNumbers(const flatbuffers::Vector<uint32_t>* numbers, Budget& budget);

flatbuffers::Offset<fb::TableSpec> PackSpec(flatbuffers::FlatBufferBuilder& b, const TableSpec& spec);
Status UnpackSpec(const fb::TableSpec& in, Budget& budget, TableSpec* out);
flatbuffers::Offset<fb::ClusterState> PackState(flatbuffers::FlatBufferBuilder& b, const ClusterState& state);
Status UnpackState(const fb::ClusterState& in, Budget& budget, ClusterState* out);
// The same for a part of one, as it is in a StateDelta: what it says is not checked as a whole.
Status UnpackStateParts(const fb::ClusterState& in, Budget& budget, ClusterState* out);
// What a holder of a state relies on: order, and that every owner exists.
Status CheckState(const ClusterState& state);

// Verifies a whole buffer. The limits follow from its size: depth of our schema, and no more
// tables than an honest encoder can fit.
template <class Root>
bool Verified(std::span<const std::byte> bytes, const char* identifier) {
  constexpr size_t kSmallestTable = 8;  // an offset to it, and its own first word
  flatbuffers::Verifier::Options options;
  options.max_depth = 8;
  options.max_tables = static_cast<flatbuffers::uoffset_t>(bytes.size() / kSmallestTable + 8);
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), options);
  return verifier.VerifyBuffer<Root>(identifier);
}

}  // namespace cairn::wire
