// What backups cost: the same pushes and pulls on a cluster with one owner of each partition and on
// one with two, in turns, beside the limits of this machine measured in the same run.
//
//   script/bench --copies          starts both clusters, of two servers each, and this as the worker
//                                  of both
//
// The cluster with two copies is the environment's; the other one is at --one-copy. With two copies
// every pushed byte crosses loopback twice, to the primary and to the backup, so the limit of a push
// is half as high; in sync rounds it is the sum of all workers that crosses it the second time, once
// however many they are. One worker, as here, is the dearest case.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "cairn/client.h"
#include "limits/limits.h"
#include "measure.h"
#include "report.h"

namespace {

using bench::Check;

constexpr int kTurns = 5;  // of each cluster, for each figure

struct Flags {
  std::string one_copy;  // host:port of a scheduler
  std::string json;
  double seconds = 1.0;  // per figure and cluster
  uint64_t keys = 20'000;
  uint32_t dim = 16;
  uint64_t rows = 500'000;  // of a sparse table
};

// One kind of work on both clusters.
struct Figure {
  std::string work;
  double amount = 0;  // GB or M keys that the worker sends and receives
  std::string unit;
  double limit = 0;                 // of amount a second, with one copy
  bool pushes = true;               // a second copy halves the limit
  std::array<double, 2> median_us;  // with one copy, with two
};

class Copies {
 public:
  Copies(const Flags& flags, const bench::Limits& limits, std::array<cairn::Client*, 2> clients)
      : flags_(flags), limits_(limits), clients_(clients) {}

  void Dense(cairn::Mode mode, const char* size_name, uint64_t bytes) {
    cairn::TableSpec spec;
    spec.name = "bench dense";
    spec.size = bytes / sizeof(float);
    spec.mode = mode;
    std::array<cairn::DenseTable, 2> tables;
    for (size_t i = 0; i < 2; ++i) {
      auto table = clients_[i]->CreateDense(spec);
      Check(table.status());
      tables[i] = *table;
    }
    const std::vector<float> gradient(spec.size, 1e-3f);
    std::vector<float> out(spec.size);
    const double gigabytes = static_cast<double>(bytes) / 1e9;
    const auto figure = [&](const char* what, double ways, bool pushes, auto work) {
      Measure({Name("dense", mode, what) + " " + size_name,
               ways * gigabytes,
               "GB/s",
               limits_.loopback_gb_per_s,
               pushes,
               {}},
              [&](size_t i) { Check(work(tables[i]).Wait()); });
    };
    figure("push", 1, true, [&](cairn::DenseTable& t) { return t.Push(std::span<const float>(gradient)); });
    figure("push+pull", 2, true, [&](cairn::DenseTable& t) {
      return t.PushPull(std::span<const float>(gradient), std::span<float>(out));
    });
    if (mode == cairn::Mode::kAsync)
      figure("pull", 1, false, [&](cairn::DenseTable& t) { return t.Pull(std::span<float>(out)); });
    for (cairn::Client* client : clients_) Check(client->DropTable(spec.name));
  }

  void Sparse(cairn::Mode mode) {
    cairn::TableSpec spec;
    spec.name = "bench sparse";
    spec.kind = cairn::TableKind::kSparse;
    spec.dim = flags_.dim;
    spec.mode = mode;
    std::array<cairn::SparseTable, 2> tables;
    std::vector<cairn::RowKey> keys(flags_.keys);
    const std::vector<float> rows(flags_.keys * flags_.dim, 1e-3f);
    std::vector<float> out(rows.size());
    for (size_t i = 0; i < 2; ++i) {
      auto table = clients_[i]->CreateSparse(spec);
      Check(table.status());
      tables[i] = *table;
      // Every row exists before anything is measured.
      for (uint64_t first = 0; first < flags_.rows; first += flags_.keys) {
        for (uint64_t k = 0; k < flags_.keys; ++k) keys[k] = cairn::Mix64(first + k);
        Check(tables[i].Push(keys, std::span<const float>(rows)).Wait());
      }
    }
    cairn::Random random(1);
    for (cairn::RowKey& key : keys) key = cairn::Mix64(random.Below(flags_.rows));
    const double row_bytes = 8.0 + 4.0 * flags_.dim;
    const double limit =
        std::min(limits_.loopback_gb_per_s * 1e9 / row_bytes, limits_.gather_rows_per_s) / 1e6;
    const auto figure = [&](const char* what, bool pushes, auto work) {
      Measure({Name("sparse", mode, what) + " " + std::to_string(flags_.keys / 1000) + " k keys",
               static_cast<double>(flags_.keys) / 1e6,
               "M keys/s",
               limit,
               pushes,
               {}},
              [&](size_t i) { Check(work(tables[i]).Wait()); });
    };
    figure("push", true, [&](cairn::SparseTable& t) { return t.Push(keys, std::span<const float>(rows)); });
    figure("push+pull", true, [&](cairn::SparseTable& t) {
      return t.PushPull(keys, std::span<const float>(rows), std::span<float>(out));
    });
    if (mode == cairn::Mode::kAsync)
      figure("pull", false, [&](cairn::SparseTable& t) { return t.Pull(keys, std::span<float>(out)); });
    for (cairn::Client* client : clients_) Check(client->DropTable(spec.name));
  }

  void PrintLast() const {
    const Figure& figure = figures_.back();
    std::printf("%-30s %9.0f us %9.0f us %6.2f", figure.work.c_str(), figure.median_us[0],
                figure.median_us[1], figure.median_us[1] / figure.median_us[0]);
    for (size_t i = 0; i < 2; ++i)
      std::printf("  %6.2f of %6.2f %-8s (%.2f)", Rate(figure, i), Limit(figure, i), figure.unit.c_str(),
                  Rate(figure, i) / Limit(figure, i));
    std::printf("\n");
    std::fflush(stdout);
  }

  static void PrintHead() {
    std::printf("%-30s %12s %12s %6s  %-31s  %s\n", "work", "1 copy", "2 copies", "times",
                "1 copy: rate of the limit", "2 copies: rate of the limit");
  }

  std::vector<bench::Row> ForJson() const {
    std::vector<bench::Row> rows;
    for (const Figure& figure : figures_)
      for (size_t i = 0; i < 2; ++i)
        rows.push_back({figure.work + (i == 0 ? ", 1 copy" : ", 2 copies"), figure.median_us[i],
                        Rate(figure, i), figure.unit, Limit(figure, i), "loopback TCP, or random gather"});
    return rows;
  }

 private:
  static std::string Name(const char* kind, cairn::Mode mode, const char* what) {
    return std::string(kind) + (mode == cairn::Mode::kSync ? " sync " : " async ") + what;
  }
  static double Rate(const Figure& figure, size_t i) { return figure.amount / (figure.median_us[i] * 1e-6); }
  static double Limit(const Figure& figure, size_t i) {
    return figure.limit / (i == 1 && figure.pushes ? 2 : 1);
  }

  void Measure(Figure figure, const std::function<void(size_t)>& work) {
    std::array<std::vector<double>, 2> micros;
    for (int turn = 0; turn < kTurns; ++turn) {
      for (size_t i = 0; i < 2; ++i) {
        work(i);  // unmeasured: the other cluster had the caches
        if (turn == 0) work(i);
        bench::Sample(flags_.seconds / kTurns, [&] { work(i); }, &micros[i]);
      }
    }
    for (size_t i = 0; i < 2; ++i) figure.median_us[i] = bench::Median(std::move(micros[i]));
    figures_.push_back(std::move(figure));
    PrintLast();
  }

  const Flags& flags_;
  const bench::Limits& limits_;
  std::array<cairn::Client*, 2> clients_;
  std::vector<Figure> figures_;
};

cairn::ClientOptions AddressOf(const std::string& text) {
  const size_t colon = text.rfind(':');
  cairn::ClientOptions options;
  options.scheduler_host = text.substr(0, colon);
  options.scheduler_port =
      colon == std::string::npos ? 0 : static_cast<uint16_t>(std::atoi(text.c_str() + colon + 1));
  return options;
}

int Run(const Flags& flags) {
  std::printf("measuring this machine's limits …\n");
  std::fflush(stdout);
  const bench::Limits limits = bench::MeasureLimits();
  bench::PrintLimits(limits);
  auto two_copies = cairn::ClientOptions::FromEnvironment();
  Check(two_copies.status());
  auto one = cairn::Client::Connect(AddressOf(flags.one_copy));
  Check(one.status());
  auto two = cairn::Client::Connect(*two_copies);
  Check(two.status());
  const std::string set_up = "two clusters of " + std::to_string((*one)->server_count()) + " and " +
                             std::to_string((*two)->server_count()) + " servers, 1 worker";
  std::printf("%s\n", set_up.c_str());
  Copies copies(flags, limits, {one->get(), two->get()});
  Copies::PrintHead();
  for (const cairn::Mode mode : {cairn::Mode::kAsync, cairn::Mode::kSync}) {
    copies.Dense(mode, "4 KB", 4 << 10);
    copies.Dense(mode, "256 KB", 256 << 10);
    copies.Dense(mode, "16 MB", 16 << 20);
    copies.Sparse(mode);
  }
  Check((*two)->Finish());
  Check((*one)->Finish());
  if (!flags.json.empty() && !bench::WriteJson(flags.json, copies.ForJson(), set_up)) {
    std::fprintf(stderr, "bench_copies: %s can't be written\n", flags.json.c_str());
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Measures what a second copy of every partition costs, beside this machine's limits."};
  Flags flags;
  app.add_option("--one-copy", flags.one_copy, "Scheduler of the cluster without backups, host:port")
      ->required();
  app.add_option("--json", flags.json, "Write the figures to this file too");
  app.add_option("--seconds", flags.seconds, "Time per figure and cluster")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--keys", flags.keys, "Keys of a sparse batch")
      ->check(CLI::Range(1000, 10'000'000))
      ->capture_default_str();
  app.add_option("--dim", flags.dim, "Floats of a row")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--rows", flags.rows, "Rows of a sparse table")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return Run(flags);
}
