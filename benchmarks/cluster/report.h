// The table that a benchmark prints: each figure beside the limit measured in the same run.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace bench {

struct Row {
  std::string work;      // "dense push 16 MB"
  double median_us = 0;  // one operation, answered
  double rate = 0;       // GB/s or M keys/s
  std::string unit;
  double limit = 0;        // in the same unit; 0: none
  std::string limit_name;  // "loopback TCP"
};

inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void PrintTable(const std::vector<Row>& rows);
// False if the file can't be written.
bool WriteJson(const std::string& path, const std::vector<Row>& rows, const std::string& set_up);

}  // namespace bench
