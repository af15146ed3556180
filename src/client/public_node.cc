// The public API (include/cairn/client.h) on top of ClientImpl: types to bytes and back.
#include <string>
#include <utility>

#include "client/client_node.h"

namespace cairn {
namespace {
template <class T>
constexpr ElementType kElement = sizeof(T) == 8 ? ElementType::kInt64 : ElementType::kFloat32;

template <class T>
TableCall CallOf(std::span<const RowKey> keys, std::span<const T> values, std::span<T> out,
                 const PushOptions& options) {
  return {.element = kElement<T>,
          .keys = keys,
          .values = std::as_bytes(values),
          .out = std::as_writable_bytes(out),
          .options = options};
}

PushOptions WithTimeout(const PullOptions& options) {
  PushOptions push;
  push.timeout_ms = options.timeout_ms;
  return push;
}

constexpr size_t kMaxNameBytes = 255;  // the scheduler's limit too

// What can be wrong about a spec before the scheduler sees it.
Status CheckSpec(const TableSpec& spec) {
  const std::string named = "table \"" + spec.name + "\"";
  if (spec.name.empty()) return {Code::kInvalidArgument, "a table needs a name"};
  if (spec.name.size() > kMaxNameBytes) {
    return {Code::kInvalidArgument, "a table's name has at most " + std::to_string(kMaxNameBytes) + " bytes, not " +
                                        std::to_string(spec.name.size())};
  }
  if (spec.kind == TableKind::kDense) {
    if (spec.size == 0) return {Code::kInvalidArgument, named + ": a dense table needs a size of at least 1"};
    if (spec.dim != 0)
      return {Code::kInvalidArgument, named + ": dim is for sparse tables; a dense one has a size"};
  } else {
    if (spec.dim == 0) return {Code::kInvalidArgument, named + ": a sparse table needs a dim of at least 1"};
    if (spec.size != 0)
      return {Code::kInvalidArgument, named + ": size is for dense tables; a sparse one has a dim"};
  }
  return Status::Ok();
}

// An empty gradient of a dense sync table would otherwise pass for a bare done.
template <class T>
Status CheckDense(const TableHandle& table, std::span<const T> values) {
  if (values.size() == table.info.spec.size) return Status::Ok();
  return {Code::kInvalidArgument, "table \"" + table.info.spec.name + "\" has " +
                                      std::to_string(table.info.spec.size) + " elements, push has " +
                                      std::to_string(values.size()) +
                                      ": give the whole table, or make it anew with this size"};
}
}  // namespace

uint64_t DenseTable::size() const { return table_->info.spec.size; }
const TableSpec& DenseTable::spec() const { return table_->info.spec; }
uint32_t SparseTable::dim() const { return table_->info.spec.dim; }
const TableSpec& SparseTable::spec() const { return table_->info.spec; }

Result<uint64_t> DenseTable::round() const { return client_->NextRound(*table_); }
Result<uint64_t> SparseTable::round() const { return client_->NextRound(*table_); }

Pending DenseTable::Push(std::span<const float> gradient, const PushOptions& options) {
  if (Status wrong = CheckDense(*table_, gradient); !wrong.ok()) return ClientImpl::Ready(wrong);
  return client_->Push(*table_, CallOf<float>({}, gradient, {}, options));
}
Pending DenseTable::Pull(std::span<float> out, const PullOptions& options) {
  return client_->Pull(*table_, CallOf<float>({}, {}, out, WithTimeout(options)));
}
Pending DenseTable::PushPull(std::span<const float> gradient, std::span<float> out,
                             const PushOptions& options) {
  if (Status wrong = CheckDense(*table_, gradient); !wrong.ok()) return ClientImpl::Ready(wrong);
  return client_->PushPull(*table_, CallOf<float>({}, gradient, out, options));
}
Pending DenseTable::Done(const PushOptions& options) { return client_->Done(*table_, options); }
Pending DenseTable::Push(std::span<const int64_t> values, const PushOptions& options) {
  if (Status wrong = CheckDense(*table_, values); !wrong.ok()) return ClientImpl::Ready(wrong);
  return client_->Push(*table_, CallOf<int64_t>({}, values, {}, options));
}
Pending DenseTable::Pull(std::span<int64_t> out, const PullOptions& options) {
  return client_->Pull(*table_, CallOf<int64_t>({}, {}, out, WithTimeout(options)));
}
Pending DenseTable::PushPull(std::span<const int64_t> values, std::span<int64_t> out,
                             const PushOptions& options) {
  if (Status wrong = CheckDense(*table_, values); !wrong.ok()) return ClientImpl::Ready(wrong);
  return client_->PushPull(*table_, CallOf<int64_t>({}, values, out, options));
}

Pending SparseTable::Push(std::span<const RowKey> keys, std::span<const float> rows,
                          const PushOptions& options) {
  return client_->Push(*table_, CallOf<float>(keys, rows, {}, options));
}
Pending SparseTable::Pull(std::span<const RowKey> keys, std::span<float> out, const PullOptions& options) {
  return client_->Pull(*table_, CallOf<float>(keys, {}, out, WithTimeout(options)));
}
Pending SparseTable::PushPull(std::span<const RowKey> keys, std::span<const float> rows, std::span<float> out,
                              const PushOptions& options) {
  return client_->PushPull(*table_, CallOf<float>(keys, rows, out, options));
}
Pending SparseTable::Done(const PushOptions& options) { return client_->Done(*table_, options); }
Pending SparseTable::Push(std::span<const RowKey> keys, std::span<const int64_t> rows,
                          const PushOptions& options) {
  return client_->Push(*table_, CallOf<int64_t>(keys, rows, {}, options));
}
Pending SparseTable::Pull(std::span<const RowKey> keys, std::span<int64_t> out, const PullOptions& options) {
  return client_->Pull(*table_, CallOf<int64_t>(keys, {}, out, WithTimeout(options)));
}
Pending SparseTable::PushPull(std::span<const RowKey> keys, std::span<const int64_t> rows,
                              std::span<int64_t> out, const PushOptions& options) {
  return client_->PushPull(*table_, CallOf<int64_t>(keys, rows, out, options));
}

Client::Client(std::shared_ptr<ClientImpl> impl) : impl_(std::move(impl)) {}
Client::~Client() { impl_->Close({Code::kCancelled, "this client is closed"}); }

Result<std::unique_ptr<Client>> Client::Connect(ClientOptions options) {
  auto impl = ClientImpl::Connect(std::move(options));
  if (!impl.ok()) return impl.status();
  return std::unique_ptr<Client>(new Client(std::move(*impl)));
}

uint32_t Client::rank() const { return impl_->rank(); }
uint32_t Client::world_size() const { return impl_->world_size(); }
uint32_t Client::server_count() const { return impl_->server_count(); }
const std::string& Client::cluster_id() const { return impl_->cluster_id(); }

Result<DenseTable> Client::CreateDense(TableSpec spec) {
  spec.kind = TableKind::kDense;
  if (Status wrong = CheckSpec(spec); !wrong.ok()) return wrong;
  auto info = impl_->CreateTable(std::move(spec));
  if (!info.ok()) return info.status();
  DenseTable table;
  table.client_ = impl_;
  table.table_ = std::make_shared<const TableHandle>(TableHandle{std::move(*info)});
  return table;
}

Result<SparseTable> Client::CreateSparse(TableSpec spec) {
  spec.kind = TableKind::kSparse;
  if (Status wrong = CheckSpec(spec); !wrong.ok()) return wrong;
  auto info = impl_->CreateTable(std::move(spec));
  if (!info.ok()) return info.status();
  SparseTable table;
  table.client_ = impl_;
  table.table_ = std::make_shared<const TableHandle>(TableHandle{std::move(*info)});
  return table;
}

Status Client::DropTable(const std::string& name) { return impl_->DropTable(name); }
Status Client::Barrier() { return impl_->Barrier(); }
Status Client::Finish() { return impl_->Finish(); }

}  // namespace cairn
