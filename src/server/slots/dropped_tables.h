// What tables were like that have been dropped: requests for them are still under way, may be as large as
// they could be before, and get the answer that says what is wrong. Pure; one thread.
#pragma once

#include <cstddef>
#include <map>

#include "base/ids.h"
#include "cairn/types.h"

namespace cairn::server {

class DroppedTables {
 public:
  static constexpr size_t kMost = 1024;  // those with the highest ids, which are the newest, are kept

  void Add(TableId id, const TableSpec& spec);
  // What decides how large a request may be, and no more; null: not known.
  const TableSpec* Find(TableId id) const;

 private:
  std::map<TableId, TableSpec> specs_;
};

}  // namespace cairn::server
