// Push, pull and both, dense and sparse, through a real cluster. script/bench runs it in several
// clusters and puts its figures beside the limits of the machine; alone it prints them.
//
//   cairn run -s 1 -w 1 -- bench_cluster --json figures.json     (servers are processes of their own)
//   bench_cluster --rows 1000000                                 (an embedded cluster)
//
// With several workers all do the same at the same time, and each writes its own file: worker 1 to
// figures.json.1.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "cairn/client.h"
#include "cairn/embedded.h"
#include "figures.h"
#include "measure.h"

namespace {

using bench::Check;

int Run(const bench::ClusterFlags& flags) {
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
  bench::Figures figures(**client, flags);
  const auto wanted = [&](const char* group, bool by_default) {
    return flags.only.empty() ? by_default : std::ranges::find(flags.only, group) != flags.only.end();
  };
  if (wanted("small", true)) figures.Small();
  if (wanted("dense", true)) figures.Dense();
  if (wanted("sparse", true)) figures.Sparse();
  if (wanted("sync", false)) figures.Sync();
  if (wanted("idle", false)) figures.Idle();
  const uint32_t rank = (*client)->rank();
  const std::string path = rank == 0 ? flags.json : flags.json + "." + std::to_string(rank);
  const bool written = flags.json.empty() || figures.WriteJson(path, set_up);
  Check((*client)->Finish());
  if (written) return 0;
  std::fprintf(stderr, "bench_cluster: %s can't be written\n", path.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Measures push and pull through a cluster."};
  bench::ClusterFlags flags;
  app.add_option("--json", flags.json, "Write the figures to this file too");
  app.add_option("--only", flags.only, "Some of: small, dense, sparse, sync, idle")
      ->delimiter(',')
      ->check(CLI::IsMember({"small", "dense", "sparse", "sync", "idle"}));
  app.add_option("--optimizers", flags.optimizers, "Some of: sgd, adagrad, adam; the first one in full")
      ->delimiter(',')
      ->check(CLI::IsMember({"sgd", "adagrad", "adam"}));
  app.add_option("--seconds", flags.seconds, "Time per figure")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--keys", flags.keys, "Keys of a sparse batch")
      ->check(CLI::Range(1000, 10'000'000))
      ->capture_default_str();
  app.add_option("--dim", flags.dim, "Floats of a row")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--rows", flags.rows, "Rows of the sparse table")
      ->check(CLI::Range(1000, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--idle-seconds", flags.idle_seconds, "How long --only idle looks")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return Run(flags);
}
