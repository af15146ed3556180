#include "report.h"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace bench {

void PrintTable(const std::vector<Row>& rows) {
  std::printf("%-34s %12s %18s %18s %7s\n", "work", "median", "rate", "limit", "ratio");
  for (const Row& row : rows) {
    char rate[32], limit[48] = "", ratio[16] = "";
    std::snprintf(rate, sizeof rate, "%.2f %s", row.rate, row.unit.c_str());
    if (row.limit > 0) {
      std::snprintf(limit, sizeof limit, "%.2f %s", row.limit, row.unit.c_str());
      std::snprintf(ratio, sizeof ratio, "%.2f", row.rate / row.limit);
    }
    std::printf("%-34s %9.1f us %18s %18s %7s  %s\n", row.work.c_str(), row.median_us, rate, limit, ratio,
                row.limit_name.c_str());
  }
  std::fflush(stdout);
}

bool WriteJson(const std::string& path, const std::vector<Row>& rows, const std::string& set_up) {
  nlohmann::json json;
  json["set_up"] = set_up;
  for (const Row& row : rows)
    json["rows"].push_back({{"work", row.work},
                            {"median_us", row.median_us},
                            {"rate", row.rate},
                            {"unit", row.unit},
                            {"limit", row.limit},
                            {"limit_name", row.limit_name},
                            {"ratio", row.limit > 0 ? row.rate / row.limit : 0.0}});
  std::ofstream file(path);
  file << json.dump(2) << "\n";
  return static_cast<bool>(file.flush());
}

}  // namespace bench
