#include "figures.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "measure.h"

namespace bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kMostRuns = 50'000, kLeastRuns = 5;
// Operations before counting allocations, and counted: buffers have been through every queue by then.
constexpr int kWarm = 100, kCounted = 200;

double MicrosSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// The q-th part of sorted values.
double Quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1) + 0.5)];
}

}  // namespace

Figures::Figures(cairn::Client& client, const ClusterFlags& flags)
    : client_(client), flags_(flags), allocations_(Allocations::Open()) {}

void Figures::Measure(Work work, const std::function<void()>& operation) {
  Figure figure{.id = work.id, .work = work.text, .unit = work.unit};
  Check(client_.Barrier());  // the workers do the same at the same time
  operation();
  operation();
  std::vector<double> micros;
  const auto end = Clock::now() + std::chrono::duration<double>(flags_.seconds);
  while (micros.size() < kLeastRuns || (Clock::now() < end && micros.size() < kMostRuns)) {
    if (work.before) work.before();
    const auto start = Clock::now();
    operation();
    micros.push_back(MicrosSince(start));
  }
  if (allocations_ != nullptr) CountAllocations(operation, &figure);
  Check(client_.Barrier());  // nobody starts with something else while others still measure
  Add(work, std::move(micros), std::move(figure));
}

void Figures::MeasureRounds(Work work, int rounds, const std::function<void()>& operation) {
  Check(client_.Barrier());
  std::vector<double> micros;
  for (int i = 0; i < rounds + 5; ++i) {
    const auto start = Clock::now();
    operation();
    if (i >= 5) micros.push_back(MicrosSince(start));
  }
  Figure figure{.id = work.id, .work = work.text, .unit = work.unit};
  if (allocations_ != nullptr) CountAllocations(operation, &figure);
  Add(work, std::move(micros), std::move(figure));
}

void Figures::Add(const Work& work, std::vector<double> micros, Figure figure) {
  std::sort(micros.begin(), micros.end());
  const auto in_unit = [&](double us) { return work.amount > 0 ? work.amount / (us * 1e-6) : us; };
  figure.median_us = Quantile(micros, 0.5);
  figure.value = in_unit(figure.median_us);
  const double low = in_unit(Quantile(micros, 0.25)), high = in_unit(Quantile(micros, 0.75));
  figure.least = std::min(low, high);
  figure.most = std::max(low, high);
  figure.runs = micros.size();
  std::printf("%-44s %10.1f us %9.2f %s (%.2f to %.2f)", figure.work.c_str(), figure.median_us, figure.value,
              figure.unit.c_str(), figure.least, figure.most);
  if (figure.client_allocations >= 0)
    std::printf("  allocations %.2f client, %.2f server", figure.client_allocations,
                figure.server_allocations);
  std::printf("\n");
  std::fflush(stdout);
  all_.push_back(std::move(figure));
}

void Figures::CountAllocations(const std::function<void()>& operation, Figure* figure) {
  for (int i = 0; i < kWarm; ++i) operation();
  const AllocationCounts before = allocations_->Now();
  for (int i = 0; i < kCounted; ++i) operation();
  const AllocationCounts after = allocations_->Now();
  figure->client_allocations = static_cast<double>(after.client - before.client) / kCounted;
  figure->server_allocations = static_cast<double>(after.servers - before.servers) / kCounted;
}

bool Figures::WriteJson(const std::string& path, const std::string& set_up) const {
  nlohmann::json json{{"set_up", set_up}, {"rank", client_.rank()}, {"figures", nlohmann::json::array()}};
  for (const Figure& f : all_) {
    nlohmann::json one{{"id", f.id},       {"work", f.work}, {"unit", f.unit}, {"value", f.value},
                       {"least", f.least}, {"most", f.most}, {"runs", f.runs}, {"median_us", f.median_us}};
    if (f.client_allocations >= 0) {
      one["client_allocations"] = f.client_allocations;
      one["server_allocations"] = f.server_allocations;
    }
    json["figures"].push_back(std::move(one));
  }
  std::ofstream file(path);
  file << json.dump(1) << "\n";
  return static_cast<bool>(file.flush());
}

}  // namespace bench
