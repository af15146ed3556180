// Ballast: a dense table of a given size that is filled once and then only lies there, so that a server
// has something to hold, to copy and to move.
#include <algorithm>
#include <string>

#include "streams.h"

namespace soak {
namespace {

constexpr uint64_t kElementsPerMb = 1'000'000 / sizeof(int64_t);

cairn::Result<cairn::DenseTable> Open(const Life& life) {
  cairn::TableSpec spec;
  spec.name = "soak.ballast";
  spec.element = cairn::ElementType::kInt64;
  spec.size = life.options->ballast_mb * kElementsPerMb;
  return life.client->CreateDense(spec);
}

}  // namespace

cairn::Status FillBallast(const Life& life) {
  if (life.options->ballast_mb == 0 || life.rank != 0 || life.number != 0) return cairn::Status::Ok();
  auto table = Open(life);
  if (!table.ok()) return table.status();
  const std::vector<int64_t> ones(table->size(), 1);
  return table->Push(std::span<const int64_t>(ones)).Wait();
}

cairn::Status CheckBallast(const Life& life, Verdict* verdict) {
  // A second life of rank 0 can't know whether the first one had come so far.
  if (life.options->ballast_mb == 0 || life.number != 0) return cairn::Status::Ok();
  auto table = Open(life);
  if (!table.ok()) return table.status();
  std::vector<int64_t> content(table->size());
  if (auto s = table->Pull(std::span<int64_t>(content)).Wait(); !s.ok()) return s;
  const auto wrong = [&](auto is_wrong) {
    return static_cast<uint64_t>(std::count_if(content.begin(), content.end(), is_wrong));
  };
  const uint64_t missing = wrong([](int64_t v) { return v < 1; }),
                 more = wrong([](int64_t v) { return v > 1; });
  verdict->lost += missing;
  verdict->twice += more;
  if (missing + more > 0) {
    verdict->findings.push_back("ballast: " + std::to_string(missing) + " elements are missing and " +
                                std::to_string(more) + " were applied again");
  }
  return cairn::Status::Ok();
}

}  // namespace soak
