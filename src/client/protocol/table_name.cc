#include "client/protocol/table_name.h"

namespace cairn::client {

std::string TableName(const wire::ClusterState& state, TableId table) {
  const wire::TableInfo* info = state.FindTable(table);
  return info == nullptr ? "table " + std::to_string(table.value) : "table \"" + info->spec.name + "\"";
}

}  // namespace cairn::client
