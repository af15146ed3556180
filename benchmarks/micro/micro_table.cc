// What a sparse table of 16 floats a row does in one process, on one thread, at 10 M rows (--rows): what
// process memory it takes, the longest pause while it grows, and how many keys a push and a pull of
// 100 k keys reach a second. The last are the limit for the same work through a cluster: the same
// index and slabs, without frames, sockets and memory to share.
//
//   micro_table --json figures.json
//   micro_table --rows 100000000 --only-memory        (about 9 GB)
//
// micro_table_cases has every optimizer, by Google's benchmark.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "limits/limits.h"
#include "limits/repeat.h"
#include "sparse_tables.h"

namespace bench {
namespace {

struct Flags {
  std::string json;
  uint64_t rows = 10'000'000;
  size_t keys = 100'000;
  int times = 9;
  bool only_memory = false;
};

struct Figure {
  std::string name;
  double value = 0;
  std::string unit;
  std::string note;  // the goal, or what it is compared with
};

class Figures {
 public:
  void Add(Figure figure) {
    std::printf("%-58s %10.2f %-10s %s\n", figure.name.c_str(), figure.value, figure.unit.c_str(),
                figure.note.c_str());
    std::fflush(stdout);
    all_.push_back(std::move(figure));
  }
  bool WriteJson(const std::string& path, const Flags& flags) const {
    nlohmann::json json;
    json["set_up"] = {{"rows", flags.rows}, {"keys", flags.keys}, {"dim", kDim}, {"slots", kSlots}};
    for (const Figure& f : all_)
      json["figures"].push_back({{"name", f.name}, {"value", f.value}, {"unit", f.unit}, {"note", f.note}});
    std::ofstream file(path);
    file << json.dump(2) << "\n";
    return static_cast<bool>(file.flush());
  }

 private:
  std::vector<Figure> all_;
};

struct Stored {
  cairn::Storage storage;
  const char* name;
};
constexpr Stored kStored[] = {{cairn::Storage::kFull, "float32"},
                              {cairn::Storage::kBfloat16, "bfloat16"},
                              {cairn::Storage::kFloat16, "float16"}};

void ReportFilling(const SparseTables& tables, const ProcessMemory& before, const std::string& of,
                   Figures& figures) {
  const auto rows = static_cast<double>(tables.options.rows);
  const auto row_bytes = static_cast<double>(tables.row_bytes);
  const ProcessMemory after = ReadProcessMemory();
  const double resident = static_cast<double>(after.resident - before.resident);
  figures.Add({"memory a row beyond values and state" + of, resident / rows - row_bytes, "B",
               "goal 24; process memory, key and index included"});
  figures.Add({"the same as the tables count it" + of,
               static_cast<double>(tables.counted_bytes) / rows - row_bytes, "B", ""});
  figures.Add({"process memory of the tables" + of, resident * 1e-9, "GB",
               std::to_string(after.huge >> 20) + " MiB of it in huge pages"});
  const Pauses& pauses = tables.pauses;
  const std::string batches =
      std::to_string(pauses.batches) + " batches of " + std::to_string(SparseTables::kBatch) + " keys";
  figures.Add({"longest batch while growing" + of, std::max(pauses.growth_us, pauses.page_us) * 1e-3, "ms",
               "goal 5; the thread's own time; " + batches});
  figures.Add({"longest batch without a new page" + of, pauses.growth_us * 1e-3, "ms", "index and slabs"});
  figures.Add({"longest batch with a new page" + of, pauses.page_us * 1e-3, "ms",
               std::to_string(pauses.with_page) + " batches; the system's and the host's work"});
  figures.Add({"batches above 5 ms" + of, static_cast<double>(pauses.above_5_ms), "", ""});
  figures.Add({"longest batch by the clock" + of, pauses.wall_us * 1e-3, "ms", "other programs count"});
}

void ReportRates(SparseTables& tables, const Flags& flags, const std::string& of, Figures& figures) {
  const std::vector<Frame> frames = MakeFrames(tables.options.rows, flags.keys, 8);
  std::vector<float> values(flags.keys * kDim, 1e-6f);
  const auto rate = [&](auto work) {
    const double seconds = MedianSeconds(flags.times, [&] {
      for (const Frame& frame : frames) work(frame);
    });
    return static_cast<double>(frames.size() * flags.keys) / seconds * 1e-6;
  };
  const cairn::Hyper hyper{.lr = 0.01};
  const double push = rate([&](const Frame& frame) { tables.Push(frame, values, hyper); });
  const double checked = rate([&](const Frame& frame) { tables.CheckAndPush(frame, values, hyper); });
  std::vector<float> out(values.size());
  const double pull = rate([&](const Frame& frame) { tables.Pull(frame, out); });
  const double both = rate([&](const Frame& frame) {
    tables.CheckAndPush(frame, values, hyper);
    tables.Pull(frame, out);
  });
  figures.Add({"in-process limit: sparse push" + of, push, "M keys/s", "Apply"});
  figures.Add({"in-process limit: sparse push, checked" + of, checked, "M keys/s", "as a server does it"});
  figures.Add({"in-process limit: sparse pull" + of, pull, "M keys/s", "Read"});
  figures.Add({"in-process limit: sparse push and pull" + of, both, "M keys/s",
               "each key checked, pushed and pulled"});
}

int Run(const Flags& flags) {
  Figures figures;
  std::printf("%llu rows of %u floats, SGD, %u slots, one thread; batches of %zu keys\n",
              static_cast<unsigned long long>(flags.rows), kDim, kSlots, flags.keys);
  if (!flags.only_memory) {
    figures.Add(
        {"limit: random rows read and added to", RandomAddRowsPerSecond() * 1e-6, "M rows/s", "no index"});
    figures.Add(
        {"limit: random rows copied out", RandomGatherRowsPerSecond() * 1e-6, "M rows/s", "no index"});
  }
  for (const Stored& stored : kStored) {
    const bool full = stored.storage == cairn::Storage::kFull;
    if (flags.only_memory && !full) continue;
    const std::string of = std::string(", ") + stored.name;
    const ProcessMemory before = ReadProcessMemory();
    SparseTables tables({.rows = flags.rows, .storage = stored.storage});
    ReportFilling(tables, before, of, figures);
    if (!flags.only_memory) ReportRates(tables, flags, of, figures);
  }
  if (!flags.json.empty() && !figures.WriteJson(flags.json, flags)) {
    std::fprintf(stderr, "micro_table: %s can't be written\n", flags.json.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  CLI::App app{"Measures sparse tables in one process: memory, pauses, rates."};
  bench::Flags flags;
  app.add_option("--json", flags.json, "Write the figures to this file too");
  app.add_option("--rows", flags.rows, "Rows of the table")
      ->check(CLI::Range(1'000, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--keys", flags.keys, "Keys of a push or pull")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  app.add_option("--times", flags.times, "Repetitions of eight batches; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--only-memory", flags.only_memory, "Memory and pauses of float32 only");
  CLI11_PARSE(app, argc, argv);
  return bench::Run(flags);
}
