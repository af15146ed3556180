// limits [--json]: what this machine can do, beside which every other figure is printed.
#include <cstdio>
#include <string_view>

#include "limits/limits.h"

int main(int argc, char** argv) {
  const bench::Limits limits = bench::MeasureLimits();
  if (argc > 1 && std::string_view(argv[1]) == "--json") {
    std::puts(bench::ToJson(limits).c_str());
  } else {
    bench::PrintLimits(limits);
  }
  return 0;
}
