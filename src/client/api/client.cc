// The public API on top of ClientImpl: types to bytes and back.
#include "cairn/client.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "client/runtime/client_impl.h"
#include "client/runtime/pending_state.h"
#include "optimizer/narrow.h"
#include "table/initial_value.h"

namespace cairn {
namespace {
template <class T>
constexpr ElementType kElement = sizeof(T) == 8 ? ElementType::kInt64 : ElementType::kFloat32;

// What the options of a verb have is set; the rest of the call stays as it is.
template <class Options>
void Give(TableCall& call, const Options& options) {
  call.hyper = options.hyper;
  call.weight = options.weight;
  call.timeout_ms = options.timeout_ms;
  call.info = options.info;
  if constexpr (requires { options.weighted; }) call.weighted = options.weighted;
  if constexpr (requires { options.mask; }) call.mask = options.mask;
  if constexpr (requires { options.op; }) call.op = options.op;
  if constexpr (requires { options.column; }) call.column = options.column;
  if constexpr (requires { options.value_scale; }) call.value_scale = options.value_scale;
  if constexpr (requires { options.joined; }) call.joined = options.joined;
  if constexpr (requires { options.not_finite; }) call.not_finite = options.not_finite;
  if constexpr (requires { options.scale; }) call.scale = options.scale;
  if constexpr (requires { options.skip; }) call.skip = options.skip;
  if constexpr (requires { options.borrow; }) call.borrow = options.borrow;
}

void Give(TableCall& call, const PullOptions& options) {
  call.timeout_ms = options.timeout_ms;
  call.pull_column = options.column;
  call.when_assigned = options.when_assigned;
}

template <class T, class Options>
TableCall CallOf(std::span<const RowKey> keys, std::span<const T> values, std::span<T> out,
                 const Options& options) {
  TableCall call{.element = kElement<T>,
                 .keys = keys,
                 .values = std::as_bytes(values),
                 .out = std::as_writable_bytes(out)};
  Give(call, options);
  return call;
}

template <class Options>
TableCall CallOf(ConstPieces values, Pieces out, const Options& options) {
  TableCall call;
  call.values.Reserve(values.size());
  for (std::span<const float> piece : values) call.values.Add(std::as_bytes(piece));
  call.out.Reserve(out.size());
  for (std::span<float> piece : out) call.out.Add(std::as_writable_bytes(piece));
  Give(call, options);
  return call;
}

// Of calls without arrays.
template <class Options>
TableCall CallOf(const TableHandle& table, const Options& options) {
  TableCall call{.element = table.info.spec.element};
  Give(call, options);
  return call;
}

constexpr size_t kMaxNameBytes = 255;  // the scheduler's limit too

Status CheckSegments(const TableSpec& spec, const std::string& named) {
  if (spec.segments.empty()) return Status::Ok();
  if (spec.segments.size() > wire::kMaxSegments) {
    return {Code::kInvalidArgument, named + ": at most " + std::to_string(wire::kMaxSegments) +
                                        " segments, not " + std::to_string(spec.segments.size()) +
                                        ": join small tensors"};
  }
  uint64_t end = 0;
  for (uint64_t next : spec.segments) {
    if (next <= end) {
      return {Code::kInvalidArgument, named + ": segments are ends that ascend, " + std::to_string(next) +
                                          " comes after " + std::to_string(end)};
    }
    end = next;
  }
  if (end == spec.size) return Status::Ok();
  return {Code::kInvalidArgument, named + ": the last segment ends at " + std::to_string(end) +
                                      ", the table at " + std::to_string(spec.size)};
}

// What can be wrong about a spec before the scheduler sees it.
Status CheckSpec(const TableSpec& spec) {
  const std::string named = "table \"" + spec.name + "\"";
  if (spec.name.empty()) return {Code::kInvalidArgument, "a table needs a name"};
  if (spec.name.size() > kMaxNameBytes) {
    return {Code::kInvalidArgument, "a table's name has at most " + std::to_string(kMaxNameBytes) +
                                        " bytes, not " + std::to_string(spec.name.size())};
  }
  if (spec.kind == TableKind::kDense) {
    if (spec.size == 0) return {Code::kInvalidArgument, named + ": a dense table needs a size of at least 1"};
    if (spec.dim != 0)
      return {Code::kInvalidArgument, named + ": dim is for sparse tables; a dense one has a size"};
    return CheckSegments(spec, named);
  }
  if (spec.dim == 0) return {Code::kInvalidArgument, named + ": a sparse table needs a dim of at least 1"};
  if (spec.size != 0)
    return {Code::kInvalidArgument, named + ": size is for dense tables; a sparse one has a dim"};
  if (!spec.segments.empty()) return {Code::kInvalidArgument, named + ": segments are for dense tables"};
  return Status::Ok();
}
}  // namespace

Pending::Pending() = default;
Pending::Pending(std::shared_ptr<PendingState> state) : state_(std::move(state)) {}
Pending::Pending(Pending&&) noexcept = default;

Pending& Pending::operator=(Pending&& other) noexcept {
  if (this != &other) {
    if (state_ && !state_->detached) state_->Wait();
    state_ = std::move(other.state_);
  }
  return *this;
}

Pending::~Pending() {
  if (state_ && !state_->detached) state_->Wait();
}

Status Pending::Wait() { return state_ ? state_->Wait() : Status::Ok(); }
bool Pending::WaitFor(int64_t milliseconds) {
  constexpr int64_t kMostMs = int64_t{1} << 40;  // decades; the sum must not overflow
  if (ready()) return true;
  if (milliseconds <= 0) return false;
  return state_->WaitUntil(LoopSide::NowUs() + std::min(milliseconds, kMostMs) * 1000);
}
bool Pending::ready() const { return !state_ || state_->ready(); }

uint64_t DenseTable::size() const { return table_->info.spec.size; }
const TableSpec& DenseTable::spec() const { return table_->info.spec; }
uint32_t SparseTable::dim() const { return table_->info.spec.dim; }
const TableSpec& SparseTable::spec() const { return table_->info.spec; }

Result<uint64_t> DenseTable::round() const { return client_->control().NextRound(table_->info); }
Result<uint64_t> SparseTable::round() const { return client_->control().NextRound(table_->info); }

Pending DenseTable::Push(std::span<const float> gradient, const PushOptions& options) {
  return client_->tables().Push(*table_, CallOf<float>({}, gradient, {}, options));
}
Pending DenseTable::Pull(std::span<float> out, const PullOptions& options) {
  return client_->tables().Pull(*table_, CallOf<float>({}, {}, out, options));
}
Pending DenseTable::PushPull(std::span<const float> gradient, std::span<float> out,
                             const PushPullOptions& options) {
  return client_->tables().PushPull(table_, CallOf<float>({}, gradient, out, options));
}
Pending DenseTable::Done(const DoneOptions& options) {
  return client_->tables().Done(*table_, CallOf(*table_, options));
}
Status DenseTable::EndStep(const EndStepOptions& options) {
  return client_->tables().EndStep(*table_, options.last);
}
Pending DenseTable::Push(ConstPieces gradient, const PushOptions& options) {
  return client_->tables().Push(*table_, CallOf(gradient, {}, options));
}
Pending DenseTable::Pull(Pieces out, const PullOptions& options) {
  return client_->tables().Pull(*table_, CallOf({}, out, options));
}
Pending DenseTable::PushPull(ConstPieces gradient, Pieces out, const PushPullOptions& options) {
  return client_->tables().PushPull(table_, CallOf(gradient, out, options));
}
Pending DenseTable::DonePull(Pieces out, const DoneOptions& options) {
  return client_->tables().Round(*table_, CallOf({}, out, options), {.pull_after = true});
}
Pending DenseTable::Contribute(ConstPieces gradient, const ContributeOptions& options) {
  return client_->tables().Contribute(*table_, CallOf(gradient, {}, options));
}
Pending DenseTable::Decide(Pieces out, const DecideOptions& options) {
  return client_->tables().Round(*table_, CallOf({}, out, options),
                                 {.phase = client::RoundPhase::kDecide, .pull_after = true});
}
Pending DenseTable::Push(std::span<const int64_t> values, const PushOptions& options) {
  return client_->tables().Push(*table_, CallOf<int64_t>({}, values, {}, options));
}
Pending DenseTable::Pull(std::span<int64_t> out, const PullOptions& options) {
  return client_->tables().Pull(*table_, CallOf<int64_t>({}, {}, out, options));
}
Pending DenseTable::PushPull(std::span<const int64_t> values, std::span<int64_t> out,
                             const PushPullOptions& options) {
  return client_->tables().PushPull(table_, CallOf<int64_t>({}, values, out, options));
}

Pending SparseTable::Push(std::span<const RowKey> keys, std::span<const float> rows,
                          const PushOptions& options) {
  return client_->tables().Push(*table_, CallOf<float>(keys, rows, {}, options));
}
Pending SparseTable::Pull(std::span<const RowKey> keys, std::span<float> out, const PullOptions& options) {
  return client_->tables().Pull(*table_, CallOf<float>(keys, {}, out, options));
}
Pending SparseTable::PushPull(std::span<const RowKey> keys, std::span<const float> rows, std::span<float> out,
                              const PushPullOptions& options) {
  return client_->tables().PushPull(table_, CallOf<float>(keys, rows, out, options));
}
Pending SparseTable::Done(const DoneOptions& options) {
  return client_->tables().Done(*table_, CallOf(*table_, options));
}
Status SparseTable::EndStep(const EndStepOptions& options) {
  return client_->tables().EndStep(*table_, options.last);
}
Pending SparseTable::Contribute(std::span<const RowKey> keys, std::span<const float> rows,
                                const ContributeOptions& options) {
  return client_->tables().Contribute(*table_, CallOf<float>(keys, rows, {}, options));
}
Pending SparseTable::Decide(const DecideOptions& options) {
  return client_->tables().Round(*table_, CallOf<float>({}, {}, {}, options),
                                 {.phase = client::RoundPhase::kDecide});
}
Result<std::vector<RowKey>> SparseTable::Keys(const PullOptions& options) {
  return client_->tables().Keys(*table_, CallOf(*table_, options));
}
Pending SparseTable::Push(std::span<const RowKey> keys, std::span<const int64_t> rows,
                          const PushOptions& options) {
  return client_->tables().Push(*table_, CallOf<int64_t>(keys, rows, {}, options));
}
Pending SparseTable::Pull(std::span<const RowKey> keys, std::span<int64_t> out, const PullOptions& options) {
  return client_->tables().Pull(*table_, CallOf<int64_t>(keys, {}, out, options));
}
Pending SparseTable::PushPull(std::span<const RowKey> keys, std::span<const int64_t> rows,
                              std::span<int64_t> out, const PushPullOptions& options) {
  return client_->tables().PushPull(table_, CallOf<int64_t>(keys, rows, out, options));
}

Client::Trip::Trip(Client& client) : impl_(client.impl_), trip_(impl_->hand_over().BeginTrip()) {}
Client::Trip::~Trip() { impl_->hand_over().EndTrip(trip_.get()); }

Client::Client(std::shared_ptr<ClientImpl> impl) : impl_(std::move(impl)) {}
Client::~Client() { Close(); }
void Client::Close() { impl_->Close({Code::kCancelled, "this client is closed"}); }

Result<std::unique_ptr<Client>> Client::Connect(ClientOptions options) {
  auto impl = ClientImpl::Connect(std::move(options));
  if (!impl.ok()) return impl.status();
  return std::unique_ptr<Client>(new Client(std::move(*impl)));
}

uint32_t Client::rank() const { return impl_->rank(); }
uint32_t Client::world_size() const { return impl_->world_size(); }
uint32_t Client::server_count() const { return impl_->server_count(); }
const std::string& Client::cluster_id() const { return impl_->cluster_id(); }
uint64_t Client::incarnation() const { return impl_->incarnation(); }
std::vector<uint32_t> Client::live_ranks() const {
  std::vector<uint32_t> ranks;
  for (const wire::WorkerInfo& worker : impl_->live_workers()) ranks.push_back(worker.rank.value);
  return ranks;
}
std::vector<uint64_t> Client::live_incarnations() const {
  std::vector<uint64_t> incarnations;
  for (const wire::WorkerInfo& worker : impl_->live_workers())
    incarnations.push_back(worker.incarnation.value);
  return incarnations;
}

Result<Client::Traffic> Client::traffic() const { return impl_->control().Traffic(); }
Result<std::vector<uint64_t>> Client::staleness() const { return impl_->control().Staleness(); }

DenseTable Client::DenseHandle(wire::TableInfo info) const {
  DenseTable table;
  table.client_ = impl_;
  auto feedback = client::ErrorFeedback::For(info.spec);
  table.table_ = std::make_shared<const TableHandle>(
      TableHandle{std::move(info), std::make_shared<client::DensePlanCache>(), std::move(feedback)});
  return table;
}

SparseTable Client::SparseHandle(wire::TableInfo info) const {
  SparseTable table;
  table.client_ = impl_;
  table.table_ = std::make_shared<const TableHandle>(TableHandle{std::move(info)});
  return table;
}

Result<DenseTable> Client::CreateDense(TableSpec spec) {
  spec.kind = TableKind::kDense;
  if (Status wrong = CheckSpec(spec); !wrong.ok()) return wrong;
  auto info = impl_->control().CreateTable(std::move(spec));
  if (!info.ok()) return info.status();
  return DenseHandle(*std::move(info));
}

Result<SparseTable> Client::CreateSparse(TableSpec spec) {
  spec.kind = TableKind::kSparse;
  if (Status wrong = CheckSpec(spec); !wrong.ok()) return wrong;
  auto info = impl_->control().CreateTable(std::move(spec));
  if (!info.ok()) return info.status();
  return SparseHandle(*std::move(info));
}

Result<std::vector<AnyTable>> Client::CreateTables(std::vector<TableSpec> specs) {
  for (const TableSpec& spec : specs)
    if (Status wrong = CheckSpec(spec); !wrong.ok()) return wrong;
  auto infos = impl_->control().CreateTables(std::move(specs));
  if (!infos.ok()) return infos.status();
  std::vector<AnyTable> tables;
  for (wire::TableInfo& info : *infos) {
    if (info.spec.kind == TableKind::kDense) {
      tables.emplace_back(DenseHandle(std::move(info)));
    } else {
      tables.emplace_back(SparseHandle(std::move(info)));
    }
  }
  return tables;
}

Status Client::DropTable(const std::string& name) { return impl_->control().DropTable(name); }
Status Client::Barrier() { return BeginBarrier().Wait(); }
Pending Client::BeginBarrier() { return impl_->control().BeginBarrier(); }
Status Client::Finish() { return impl_->Finish(); }

// Computed where they are wanted, by what the servers use too.
void InitialRows(const Init& init, std::span<const RowKey> keys, uint32_t dim, std::span<float> out,
                 Storage storage) {
  CAIRN_CHECK(out.size() == keys.size() * dim);
  // The number of the table takes no part where a stream is given.
  const table::InitialValue initial(init, TableId{0}, ElementType::kFloat32);
  auto* to = reinterpret_cast<std::byte*>(out.data());
  for (RowKey key : keys) {
    initial.FillRow(key, dim, to);
    to += dim * sizeof(float);
  }
  if (storage != Storage::kFull) optimizer::RoundSpan(storage, out);
}

}  // namespace cairn
