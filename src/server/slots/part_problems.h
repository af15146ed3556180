// What is wrong with the slots' parts of one request, as its answer tells it: an entry for each slot, and one
// text for the frame. Kept from one request to the next, so that its memory is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cairn/status.h"
#include "wire/frame.h"

namespace cairn::server {

class PartProblems {
 public:
  void Clear() {
    entries_.clear();
    text_.clear();
  }
  // `number`: of the push, or 0. A refusal's text says more than a gap's, which is unavailable.
  void Add(uint32_t slot, Code code, uint64_t number, const std::string& text) {
    if (entries_.empty() ||
        (code != Code::kUnavailable && entries_.back().count == static_cast<uint32_t>(Code::kUnavailable))) {
      text_ = text;
    }
    entries_.push_back({slot, static_cast<uint32_t>(code), number});
  }
  bool empty() const { return entries_.empty(); }
  std::vector<wire::SlotEntry>& entries() { return entries_; }
  const std::string& text() const { return text_; }

 private:
  std::vector<wire::SlotEntry> entries_;
  std::string text_;
};

}  // namespace cairn::server
