// What bench_cluster measures: figures with a name, each a rate or a time of one kind of operation, of
// all workers at once. Every worker writes its own; rates of several workers are added by the reader.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "allocations/allocations.h"
#include "cairn/client.h"

namespace bench {

struct ClusterFlags {
  std::string json;
  std::vector<std::string> only;  // groups; empty: all but idle
  std::vector<std::string> optimizers = {"sgd", "adagrad", "adam"};
  double seconds = 1.0;  // per figure
  uint64_t keys = 100'000;
  uint32_t dim = 16;
  uint64_t rows = 10'000'000;  // of the sparse table
  double idle_seconds = 10.0;
};

struct Figure {
  std::string id;              // "sparse_push_sgd"
  std::string work;            // for people
  std::string unit;            // GB/s, M keys/s or us
  double value = 0;            // of the median run
  double least = 0, most = 0;  // of the quartiles, in the unit
  double median_us = 0;
  uint64_t runs = 0;
  // Heap allocations of one operation, warm; negative: not counted.
  double client_allocations = -1, server_allocations = -1;
};

class Figures {
 public:
  Figures(cairn::Client& client, const ClusterFlags& flags);

  void Dense();
  void Small();
  void Sparse();
  // Rounds of all workers, as an all-reduce: each pushes its gradient and gets the new values.
  void Sync();
  // CPU of every process of the job while nothing happens.
  void Idle();

  const std::vector<Figure>& all() const { return all_; }
  // False if the file can't be written.
  bool WriteJson(const std::string& path, const std::string& set_up) const;

 private:
  struct Work {
    std::string id, text;
    double amount = 0;  // GB or M keys of an operation; 0: the figure is its time in µs
    const char* unit = "us";
    std::function<void()> before;  // each time, not measured; may be empty
  };
  void Measure(Work work, const std::function<void()>& operation);
  void MeasureRounds(Work work, int rounds, const std::function<void()>& operation);
  void Add(const Work& work, std::vector<double> micros, Figure figure);
  void CountAllocations(const std::function<void()>& operation, Figure* figure);
  void DenseOf(const std::string& optimizer, const char* size_name, uint64_t bytes, bool pull_too);
  void SparseOf(const std::string& optimizer);

  cairn::Client& client_;
  const ClusterFlags& flags_;
  std::unique_ptr<Allocations> allocations_;
  std::vector<Figure> all_;
};

}  // namespace bench
