#include "scheduler/rules/user_text.h"

#include <algorithm>
#include <cstdio>

namespace cairn::scheduler {
namespace {
constexpr size_t kMaxListed = 10;
bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }
}  // namespace

std::string Count(size_t n, std::string_view noun) {
  return std::to_string(n) + " " + std::string(noun) + (n == 1 ? "" : "s");
}

std::string Listed(std::string_view noun, const std::vector<uint32_t>& numbers) {
  std::string text(noun);
  if (numbers.size() != 1) text += "s";
  const size_t shown = std::min(numbers.size(), kMaxListed);
  for (size_t i = 0; i < shown; ++i) text += (i == 0 ? " " : ", ") + std::to_string(numbers[i]);
  if (shown < numbers.size()) text += " and " + std::to_string(numbers.size() - shown) + " more";
  return text;
}

std::string Seconds(int64_t us) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(us) * 1e-6);
  return text;
}

std::string Printable(std::string_view text, size_t max_bytes) {
  std::string out(text.substr(0, max_bytes));
  std::replace_if(out.begin(), out.end(), IsControl, ' ');
  return out;
}

bool IsPrintable(std::string_view text) { return std::none_of(text.begin(), text.end(), IsControl); }

}  // namespace cairn::scheduler
