// How large the answers on one data connection may be, by what has been asked on it: looked at before memory
// is taken for them (transport/tcp/frame_reader.h). Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "wire/frame.h"

namespace cairn::client {

class AnswerSize {
 public:
  // The largest body that a frame with this header may have, coded ones once they are plain. `values`: the
  // most bytes of values that an answer to the header's request has; nothing if no such request waits for
  // an answer. `slots`: of the cluster; an answer may name any of them.
  uint64_t MostBytes(const wire::FrameHeader& header, std::optional<uint64_t> values, size_t slots) const;
  // A request is waited for no more (its deadline has passed, its slots have moved, another copy of it is
  // answered), but an answer with so many bytes of values may still come on this connection.
  void LetGo(uint64_t values);
  // Another connection: nothing has been asked on it yet.
  void Reset() { late_values_ = 0; }

 private:
  uint64_t late_values_ = 0;  // of the largest answer that may still come
};

}  // namespace cairn::client
