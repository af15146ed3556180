// bench_scale: what more shard threads, servers and copies bring on a machine with many cores.
//
//   bench_scale [--counts 1,2,4,8] [--ways threads,servers,copies] [--json FILE]
//
// For each count n it starts jobs with the program `cairn` that lies beside it (or --cairn): one server
// with n shard threads, or n servers with one, and n workers, processes with a client each, which all
// push and pull at the same time; and for `copies` two servers with one and with two owners of each
// partition, with one worker and with two. Prints a table and writes a curve as JSON: the rates of all
// workers together. CAIRN_TRANSPORT chooses between shm and tcp. Needs nothing but the two programs.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cairn/client.h"
#include "figures.h"
#include "measure.h"

namespace {

using bench::Check;
using nlohmann::json;

struct Flags {
  bench::ClusterFlags cluster;
  std::vector<uint32_t> counts = {1, 2, 4, 8};
  std::vector<std::string> ways = {"threads", "servers", "copies"};
  std::vector<uint32_t> copies_threads = {1, 4};
  std::string cairn, json;
  int rounds = 3;
  unsigned job_timeout_s = 120;
  bool worker = false;
};

struct Job {
  std::string way;
  uint32_t count = 1;  // what the curve is over
  uint32_t servers = 1, threads = 1, workers = 1, replicas = 1;
};

std::vector<Job> JobsOf(const Flags& flags) {
  std::vector<Job> jobs;
  for (const std::string& way : flags.ways) {
    if (way == "copies") {
      for (const uint32_t workers : {1u, 2u})
        for (const uint32_t threads : flags.copies_threads)
          for (const uint32_t replicas : {1u, 2u})
            jobs.push_back({"copies, " + std::to_string(threads) + " thread(s) a server, " +
                                std::to_string(workers) + " worker(s)",
                            replicas, 2, threads, workers, replicas});
      continue;
    }
    for (const uint32_t n : flags.counts)
      jobs.push_back(way == "threads" ? Job{way, n, 1, n, n, 1} : Job{way, n, n, 1, n, 1});
  }
  return jobs;
}

std::string Folder() {
  std::string name = (std::filesystem::temp_directory_path() / "bench-scale-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    std::perror("bench_scale: no temporary folder");
    std::exit(1);
  }
  return name;
}

// One job; the sum of its workers' rates, by the figure's id.
std::map<std::string, double> Measure(const Flags& flags, const Job& job, const std::string& folder) {
  const std::string file = folder + "/figures";
  const auto text = [](auto number) { return std::to_string(number); };
  std::vector<std::string> words = {flags.cairn,
                                    "run",
                                    "--no-logs",
                                    "--no-progress",
                                    "-s",
                                    text(job.servers),
                                    "-w",
                                    text(job.workers),
                                    "--threads",
                                    text(job.threads),
                                    "--replicas",
                                    text(job.replicas),
                                    "--",
                                    std::filesystem::read_symlink("/proc/self/exe").string(),
                                    "--worker",
                                    "--worker-json",
                                    file,
                                    "--seconds",
                                    text(flags.cluster.seconds),
                                    "--keys",
                                    text(flags.cluster.keys),
                                    "--dim",
                                    text(flags.cluster.dim),
                                    "--rows",
                                    text(flags.cluster.rows)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    alarm(flags.job_timeout_s);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execv(arguments[0], arguments.data());
    std::perror(arguments[0]);
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
    std::fprintf(stderr, "bench_scale: %s, %u: the job failed with status %d\n", job.way.c_str(), job.count,
                 status);
    std::exit(1);
  }
  std::map<std::string, double> rates;
  for (uint32_t worker = 0; worker < job.workers; ++worker) {
    std::ifstream in(worker == 0 ? file : file + "." + std::to_string(worker));
    const json written = json::parse(in);
    for (const json& figure : written["figures"])
      rates[figure["id"].get<std::string>()] += figure["value"].get<double>();
  }
  return rates;
}

int Drive(const Flags& flags) {
  const std::vector<Job> jobs = JobsOf(flags);
  const std::string folder = Folder();
  // Rounds outside, so that a slow minute of the machine meets every count.
  std::vector<std::map<std::string, std::vector<double>>> found(jobs.size());
  for (int round = 0; round < flags.rounds; ++round)
    for (size_t i = 0; i < jobs.size(); ++i) {
      std::fprintf(stderr, "round %d of %d: %s, %u\n", round + 1, flags.rounds, jobs[i].way.c_str(),
                   jobs[i].count);
      for (const auto& [id, rate] : Measure(flags, jobs[i], folder)) found[i][id].push_back(rate);
    }
  std::filesystem::remove_all(folder);
  const char* transport = std::getenv("CAIRN_TRANSPORT");
  json curve{{"cores", std::thread::hardware_concurrency()},
             {"transport", transport == nullptr ? "auto" : transport},
             {"rows", flags.cluster.rows},
             {"keys", flags.cluster.keys},
             {"rounds", flags.rounds},
             {"points", json::array()}};
  std::map<std::string, double> first;  // of a way and figure: its first count's median
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Job& job = jobs[i];
    for (auto& [id, rates] : found[i]) {
      std::sort(rates.begin(), rates.end());
      const double median = rates[rates.size() / 2];
      const double base = first.try_emplace(job.way + " " + id, median).first->second;
      std::printf("%-22s %2u  %-28s %9.2f (%.2f to %.2f)  %5.2f x the first\n", job.way.c_str(), job.count,
                  id.c_str(), median, rates.front(), rates.back(), median / base);
      curve["points"].push_back({{"way", job.way},
                                 {"count", job.count},
                                 {"servers", job.servers},
                                 {"threads", job.threads},
                                 {"workers", job.workers},
                                 {"replicas", job.replicas},
                                 {"figure", id},
                                 {"value", median},
                                 {"least", rates.front()},
                                 {"most", rates.back()},
                                 {"times_first", median / base}});
    }
  }
  if (flags.json.empty()) return 0;
  std::ofstream out(flags.json);
  out << curve.dump(1) << "\n";
  return out.flush() ? 0 : 1;
}

int Work(const Flags& flags) {
  auto options = cairn::ClientOptions::FromEnvironment();
  Check(options.status());
  auto client = cairn::Client::Connect(*options);
  Check(client.status());
  bench::ClusterFlags cluster = flags.cluster;
  cluster.optimizers = {"sgd"};
  bench::Figures figures(**client, cluster);
  figures.Dense();
  figures.Sparse();
  const uint32_t rank = (*client)->rank();
  const bool written =
      figures.WriteJson(cluster.json + (rank == 0 ? "" : "." + std::to_string(rank)), "bench_scale");
  Check((*client)->Finish());
  return written ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Rates of a cluster over the number of its shard threads, servers and copies."};
  Flags flags;
  flags.cluster.rows = 4'000'000;
  flags.cairn = (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "cairn").string();
  app.add_option("--counts", flags.counts, "Shard threads or servers, and workers")->delimiter(',');
  app.add_option("--ways", flags.ways, "Some of: threads, servers, copies")
      ->delimiter(',')
      ->check(CLI::IsMember({"threads", "servers", "copies"}));
  app.add_option("--copies-threads", flags.copies_threads, "Shard threads of a server for `copies`")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--cairn", flags.cairn, "The program cairn")->capture_default_str();
  app.add_option("--json", flags.json, "Write the curve to this file");
  app.add_option("--rounds", flags.rounds, "All of it so often; the median counts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  app.add_option("--job-timeout", flags.job_timeout_s, "Seconds that a job may take")->capture_default_str();
  app.add_option("--seconds", flags.cluster.seconds, "Time per figure")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--keys", flags.cluster.keys, "Keys of a sparse batch")
      ->check(CLI::Range(1000, 10'000'000))
      ->capture_default_str();
  app.add_option("--dim", flags.cluster.dim, "Floats of a row")->check(CLI::Range(1, 4096));
  app.add_option("--rows", flags.cluster.rows, "Rows of the sparse table")
      ->check(CLI::Range(1000, 1'000'000'000))
      ->capture_default_str();
  app.add_flag("--worker", flags.worker)->group("");
  app.add_option("--worker-json", flags.cluster.json)->group("");
  CLI11_PARSE(app, argc, argv);
  return flags.worker ? Work(flags) : Drive(flags);
}
