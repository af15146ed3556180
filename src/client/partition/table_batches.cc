#include "client/partition/table_batches.h"

#include <cstddef>
#include <utility>

#include "wire/control.h"

namespace cairn::client {
namespace {
constexpr size_t kMessageBytes = 256 * 1024;  // the scheduler takes 1 MiB
constexpr size_t kSpecBytes = 160;            // beside its name and its segments
}  // namespace

std::vector<std::vector<TableSpec>> InMessages(std::vector<TableSpec> specs) {
  std::vector<std::vector<TableSpec>> messages;
  size_t bytes = 0;
  for (TableSpec& spec : specs) {
    const size_t more = kSpecBytes + spec.name.size() + spec.segments.size() * sizeof(uint64_t);
    if (messages.empty() || bytes + more > kMessageBytes ||
        messages.back().size() == wire::kMaxTablesAtOnce) {
      messages.emplace_back();
      bytes = 0;
    }
    bytes += more;
    messages.back().push_back(std::move(spec));
  }
  return messages;
}

}  // namespace cairn::client
