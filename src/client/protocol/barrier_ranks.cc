#include "client/protocol/barrier_ranks.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace cairn::client {
namespace {

bool Skip(std::string_view& text, std::string_view words) {
  if (!text.starts_with(words)) return false;
  text.remove_prefix(words.size());
  return true;
}

std::optional<uint32_t> Number(std::string_view& text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

// "barrier 3: ranks 0, 2 have not arrived"; nothing where the sentence is another one.
std::optional<std::vector<uint32_t>> NotArrived(std::string_view sentence) {
  std::vector<uint32_t> ranks;
  if (!Skip(sentence, "barrier ") || !Number(sentence)) return std::nullopt;
  if (!Skip(sentence, ": ranks ") && !Skip(sentence, ": rank ")) return std::nullopt;
  do {
    const std::optional<uint32_t> rank = Number(sentence);
    if (!rank) return std::nullopt;
    ranks.push_back(*rank);
  } while (Skip(sentence, ", "));
  if (sentence != " has not arrived" && sentence != " have not arrived") return std::nullopt;
  return ranks;
}

}  // namespace

std::vector<uint32_t> RanksInBarrier(const wire::ClusterState& state, std::string_view awaiting) {
  std::optional<std::vector<uint32_t>> absent;
  for (size_t at = 0; at <= awaiting.size() && !absent;) {  // sentence by sentence
    const size_t end = std::min(awaiting.find("; ", at), awaiting.size());
    absent = NotArrived(awaiting.substr(at, end - at));
    at = end + 2;
  }
  std::vector<uint32_t> ranks;
  if (!absent) return ranks;
  for (const wire::WorkerInfo& worker : state.workers) {
    const bool here = std::find(absent->begin(), absent->end(), worker.rank.value) == absent->end();
    if (worker.join_view.value != 0 && here) ranks.push_back(worker.rank.value);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace cairn::client
