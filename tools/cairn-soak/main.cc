// cairn-soak: the examiner. A worker program that does nothing but push numbered updates and, at
// the end, proves from the servers' content that none was lost and none applied twice.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "worker.h"

namespace {

// Taken for dead and fenced (after a long pause, say): a new life may go on.
bool MayLiveAgain(cairn::Code code) {
  return code == cairn::Code::kRetired || code == cairn::Code::kOutcomeUnknown;
}

int Run(const soak::Options& options) {
  auto client_options = cairn::ClientOptions::FromEnvironment();
  if (!client_options.ok()) {
    std::fprintf(stderr, "cairn-soak: %s\n", client_options.status().ToString().c_str());
    return 2;
  }
  for (uint32_t life = 0; life < options.lives; ++life) {
    const cairn::Status status = soak::RunLife(options, *client_options);
    if (status.ok()) return 0;
    std::fprintf(stderr, "cairn-soak: %s\n", status.ToString().c_str());
    if (!MayLiveAgain(status.code())) return 1;
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Pushes numbered updates to dense and sparse tables, keeps an account of them in a file that outlives "
      "the\n"
      "process, and compares the servers' content with it at the end. Start it as the workers of a job:\n\n"
      "  cairn run -s 2 -w 3 -- cairn-soak --dir /tmp/soak --updates 2000\n\n"
      "The last line of rank 0 is `acknowledged: N  lost: 0  twice: 0`; anything else is a failure of the "
      "cluster."};
  soak::Options options;
  std::string mode = "both";
  app.add_option("--dir", options.dir, "Folder for the accounts, shared by all workers; empty at the start")
      ->required();
  app.add_option("--mode", mode, "sync, async or both, one after the other")
      ->check(CLI::IsMember({"sync", "async", "both"}))
      ->capture_default_str();
  app.add_option("--updates", options.updates, "Updates of each kind a worker, over all its lives")
      ->check(CLI::Range(uint64_t{1}, uint64_t{100'000'000}))
      ->capture_default_str();
  app.add_option("--keys", options.keys, "Rows that a sparse update touches")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--in-flight", options.in_flight, "Async updates under way at a time")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app.add_option("--round-timeout-ms", options.round_timeout_ms, "Deadline of a sync round")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--pause-us", options.pause_us, "Pause between updates")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--ballast-mb", options.ballast_mb,
                 "MB of a table that is filled once, for the servers to hold and move")
      ->check(CLI::Range(uint64_t{0}, uint64_t{100'000}))
      ->capture_default_str();
  app.add_option("--until", options.until, "Goes on until this file exists, instead of --updates");
  app.add_option("--lives", options.lives, "Times that a rank may be started, the same for all workers")
      ->check(CLI::Range(1u, soak::kMaxLives))
      ->capture_default_str();
  app.add_option("--region", options.region,
                 "Elements that a worker's update has in the sync dense table, a multiple of 4")
      ->check(CLI::Range(4u, 1u << 20))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (options.region % 4 != 0) {
    std::fprintf(stderr, "cairn-soak: --region %u is no multiple of 4\n", options.region);
    return 2;
  }
  options.async = mode != "sync";
  options.sync = mode != "async";
  std::error_code error;
  std::filesystem::create_directories(options.dir, error);
  if (error) {
    std::fprintf(stderr, "cairn-soak: %s: %s\n", options.dir.c_str(), error.message().c_str());
    return 2;
  }
  return Run(options);
}
