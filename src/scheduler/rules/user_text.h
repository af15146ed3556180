// Small pieces of the sentences that users read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::scheduler {

std::string Count(size_t n, std::string_view noun);  // "1 worker", "2 workers"
// "rank 1", "ranks 1, 2"; a long list ends in "and 90 more".
std::string Listed(std::string_view noun, const std::vector<uint32_t>& numbers);
std::string Seconds(int64_t us);                                 // "5.0 s"
std::string Printable(std::string_view text, size_t max_bytes);  // without control characters, cut
bool IsPrintable(std::string_view text);

}  // namespace cairn::scheduler
