// Push, pull and both, dense and sparse, through a real cluster, each beside the limit of this
// machine measured in the same run.
//
//   cairn run -s 1 -w 1 -- bench_cluster --json figures.json     (servers are processes of their own)
//   bench_cluster                                                (an embedded cluster)
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "cairn/client.h"
#include "cairn/embedded.h"
#include "limits/limits.h"
#include "measure.h"
#include "report.h"

namespace {

using bench::Check;
using bench::MedianMicros;

struct Flags {
  std::string json;
  double seconds = 1.0;      // per figure
  uint64_t keys = 100'000;
  uint32_t dim = 16;
  uint64_t rows = 1'000'000;  // of the sparse table
};

void Dense(cairn::Client& client, const Flags& flags, const bench::Limits& limits, std::vector<bench::Row>* rows) {
  const std::pair<const char*, uint64_t> sizes[] = {
      {"4 KB", 4 << 10}, {"64 KB", 64 << 10}, {"1 MB", 1 << 20}, {"16 MB", 16 << 20}};
  for (const auto& [name, bytes] : sizes) {
    cairn::TableSpec spec;
    spec.name = std::string("bench dense ") + name;
    spec.size = bytes / sizeof(float);
    auto table = client.CreateDense(spec);
    Check(table.status());
    std::vector<float> gradient(spec.size, 1e-3f), out(spec.size);
    const double gigabytes = static_cast<double>(bytes) / 1e9;
    const auto add = [&](const char* what, double ways, double us) {
      rows->push_back({std::string("dense ") + what + " " + name, us, ways * gigabytes / (us * 1e-6), "GB/s",
                       limits.loopback_gb_per_s, "loopback TCP"});
    };
    add("push", 1, MedianMicros(flags.seconds, [&] { Check(table->Push(std::span<const float>(gradient)).Wait()); }));
    add("pull", 1, MedianMicros(flags.seconds, [&] { Check(table->Pull(std::span<float>(out)).Wait()); }));
    add("push+pull", 2, MedianMicros(flags.seconds, [&] {
          Check(table->PushPull(std::span<const float>(gradient), std::span<float>(out)).Wait());
        }));
    Check(client.DropTable(spec.name));
  }
}

void Sparse(cairn::Client& client, const Flags& flags, const bench::Limits& limits, std::vector<bench::Row>* rows) {
  cairn::TableSpec spec;
  spec.name = "bench sparse";
  spec.kind = cairn::TableKind::kSparse;
  spec.dim = flags.dim;
  auto table = client.CreateSparse(spec);
  Check(table.status());
  // Every row exists before anything is measured: growth is another figure.
  std::vector<cairn::RowKey> keys(flags.keys);
  std::vector<float> values(flags.keys * flags.dim, 1e-3f), out(values.size());
  for (uint64_t first = 0; first < flags.rows; first += flags.keys) {
    for (uint64_t i = 0; i < flags.keys; ++i) keys[i] = cairn::Mix64(first + i);
    Check(table->Push(keys, std::span<const float>(values)).Wait());
  }
  cairn::Random random(1);
  const auto choose = [&] {
    for (cairn::RowKey& key : keys) key = cairn::Mix64(random.Below(flags.rows));
  };
  choose();
  const double row_bytes = 8.0 + 4.0 * flags.dim;
  // What the machine can do at best: the rows over loopback, or rows fetched at random.
  const double limit = std::min(limits.loopback_gb_per_s * 1e9 / row_bytes, limits.gather_rows_per_s) / 1e6;
  const auto add = [&](const char* what, double us) {
    rows->push_back({std::string("sparse ") + what + " " + std::to_string(flags.keys / 1000) + " k keys, dim " +
                         std::to_string(flags.dim),
                     us, static_cast<double>(flags.keys) / us, "M keys/s", limit, "min(loopback, random gather)"});
  };
  add("push", MedianMicros(flags.seconds, [&] { Check(table->Push(keys, std::span<const float>(values)).Wait()); }));
  add("pull", MedianMicros(flags.seconds, [&] { Check(table->Pull(keys, std::span<float>(out)).Wait()); }));
  add("push+pull", MedianMicros(flags.seconds, [&] {
        Check(table->PushPull(keys, std::span<const float>(values), std::span<float>(out)).Wait());
      }));
  // With several under way, as a training loop with a prefetch has them.
  add("push, 4 in flight,", MedianMicros(flags.seconds, [&] {
        std::vector<cairn::Pending> pending;
        for (int i = 0; i < 4; ++i) pending.push_back(table->Push(keys, std::span<const float>(values)));
        for (auto& p : pending) Check(p.Wait());
      }) / 4);
  Check(client.DropTable(spec.name));
}

int Run(const Flags& flags) {
  std::printf("measuring this machine's limits …\n");
  std::fflush(stdout);
  const bench::Limits limits = bench::MeasureLimits();
  bench::PrintLimits(limits);
  std::unique_ptr<cairn::EmbeddedCluster> embedded;
  cairn::ClientOptions options;
  std::string set_up = "cairn run";
  if (std::getenv("CAIRN_ROLE") != nullptr) {
    auto from_environment = cairn::ClientOptions::FromEnvironment();
    Check(from_environment.status());
    options = *from_environment;
  } else {
    auto cluster = cairn::EmbeddedCluster::Start();
    Check(cluster.status());
    embedded = std::move(cluster).value();
    options = embedded->ClientOptionsFor();
    set_up = "embedded";
  }
  auto client = cairn::Client::Connect(options);
  Check(client.status());
  set_up += ", " + std::to_string((*client)->server_count()) + " server(s), " +
            std::to_string((*client)->world_size()) + " worker(s)";
  std::printf("%s\n", set_up.c_str());
  std::vector<bench::Row> rows;
  Dense(**client, flags, limits, &rows);
  Sparse(**client, flags, limits, &rows);
  Check((*client)->Finish());
  bench::PrintTable(rows);
  if (!flags.json.empty() && !bench::WriteJson(flags.json, rows, set_up)) {
    std::fprintf(stderr, "bench_cluster: %s can't be written\n", flags.json.c_str());
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Measures push and pull through a cluster beside this machine's limits, in one run."};
  Flags flags;
  app.add_option("--json", flags.json, "Write the figures to this file too");
  app.add_option("--seconds", flags.seconds, "Time per figure")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--keys", flags.keys, "Keys of a sparse batch")->check(CLI::Range(1, 10'000'000))->capture_default_str();
  app.add_option("--dim", flags.dim, "Floats of a row")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--rows", flags.rows, "Rows of the sparse table")->check(CLI::Range(1, 1'000'000'000))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return Run(flags);
}
