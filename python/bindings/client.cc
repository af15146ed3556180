#include "client.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cairn/client.h"
#include "forked.h"
#include "names.h"
#include "operation.h"
#include "raising.h"
#include "tables.h"
#include "waiting.h"

namespace cairn::python {
namespace nb = nanobind;
using nb::literals::operator""_a;
namespace {

// The client and the calls that block on it. All under the GIL but for what runs in a BlockingCall,
// which has its own reference.
struct Shared {
  std::unique_ptr<Client> client;
  Running running;
};

class PyClient {
 public:
  explicit PyClient(std::unique_ptr<Client> client)
      : shared_(new std::shared_ptr<Shared>(new Shared{std::move(client), {}})) {}
  PyClient(PyClient&&) noexcept = default;
  ~PyClient() {
    if (shared_ && !Forked()) Close();
  }

  Client& client() const {
    RefuseInForkedChild();
    return *(*shared_)->client;
  }

  DenseTable CreateDense(TableSpec spec) { return Create<DenseTable>(&Client::CreateDense, std::move(spec)); }
  SparseTable CreateSparse(TableSpec spec) {
    return Create<SparseTable>(&Client::CreateSparse, std::move(spec));
  }
  std::vector<AnyTable> CreateTables(std::vector<TableSpec> specs) {
    return Create<std::vector<AnyTable>>(&Client::CreateTables, std::move(specs));
  }

  void DropTable(const std::string& name) {
    RefuseInForkedChild();
    Check(BlockingCall::Start([shared = *shared_, name] { return shared->client->DropTable(name); })->Wait());
  }

  void Barrier() {
    RefuseInForkedChild();
    // One that was interrupted is still entered: this is the same one.
    Owned<Pending> entered = std::move(barrier_);
    if (!entered) {
      nb::gil_scoped_release released;
      entered.reset(new Pending((*shared_)->client->BeginBarrier()));
    }
    try {
      WaitInSlices([&](int64_t ms) { return entered->WaitFor(ms); });
    } catch (...) {
      barrier_ = std::move(entered);
      throw;
    }
    Check(entered->Wait());
  }

  void Finish() {
    RefuseInForkedChild();
    Check(WaitForOne(finish_, [shared = *shared_] { return shared->client->Finish(); }));
    SweepDropped();
  }

  void Close() {
    if (Forked()) return;
    {
      nb::gil_scoped_release released;
      (*shared_)->client->Close();
    }
    SweepDropped();
  }

 private:
  // What `create` gives, made on another thread while this one looks after signals.
  template <class Made, class Asked>
  Made Create(Result<Made> (Client::*create)(Asked), Asked asked) {
    RefuseInForkedChild();
    auto made = std::make_shared<std::vector<Made>>();
    Check(BlockingCall::Start([shared = *shared_, made, create, asked = std::move(asked)] {
            Result<Made> result = (shared->client.get()->*create)(asked);
            if (!result.ok()) return result.status();
            made->push_back(std::move(result).value());
            return Status::Ok();
          })->Wait());
    return std::move(made->front());
  }

  Owned<std::shared_ptr<Shared>> shared_;
  std::shared_ptr<BlockingCall> finish_;
  Owned<Pending> barrier_;  // interrupted, and not waited for to its end
};

TableSpec DenseSpec(const std::string& name, uint64_t size, const std::string& dtype, const std::string& mode,
                    const std::string& optimizer, uint32_t flags, bool deterministic,
                    const std::string& non_finite, double initial_state,
                    const std::vector<uint64_t>& segments, const InitTuple& init, const std::string& wire,
                    double wire_topk, uint32_t staleness) {
  TableSpec spec;
  spec.name = name;
  spec.size = size;
  spec.element = ElementOf(dtype);
  spec.mode = ModeOf(mode);
  spec.optimizer = OptimizerOf(optimizer);
  spec.optimizer_flags = flags;
  spec.deterministic = deterministic;
  spec.non_finite = NonFiniteOf(non_finite);
  spec.initial_state = static_cast<float>(initial_state);
  spec.segments = segments;
  spec.init = InitOf(init);
  spec.wire = WireOf(wire);
  spec.wire_topk = static_cast<float>(wire_topk);
  spec.staleness = staleness;
  return spec;
}

TableSpec SparseSpec(const std::string& name, uint32_t dim, const std::string& dtype, const std::string& mode,
                     const std::string& optimizer, uint32_t flags, bool deterministic,
                     const std::string& non_finite, double initial_state, const InitTuple& init,
                     const std::string& wire, const std::string& storage, uint32_t staleness) {
  TableSpec spec;
  spec.name = name;
  spec.kind = TableKind::kSparse;
  spec.dim = dim;
  spec.element = ElementOf(dtype);
  spec.mode = ModeOf(mode);
  spec.optimizer = OptimizerOf(optimizer);
  spec.optimizer_flags = flags;
  spec.deterministic = deterministic;
  spec.non_finite = NonFiniteOf(non_finite);
  spec.initial_state = static_cast<float>(initial_state);
  spec.init = InitOf(init);
  spec.wire = WireOf(wire);
  spec.storage = StorageOf(storage);
  spec.staleness = staleness;
  return spec;
}

// create_dense and create_sparse: the same arguments, and the table is made.
template <class... Arguments>
auto CreateDenseBy(TableSpec (*spec)(Arguments...)) {
  return [spec](PyClient& self, Arguments... arguments) -> PyDense {
    return {Owned<DenseTable>(new DenseTable(self.CreateDense(spec(arguments...))))};
  };
}
template <class... Arguments>
auto CreateSparseBy(TableSpec (*spec)(Arguments...)) {
  return [spec](PyClient& self, Arguments... arguments) -> PySparse {
    return {Owned<SparseTable>(new SparseTable(self.CreateSparse(spec(arguments...))))};
  };
}

nb::list CreateTables(PyClient& self, const std::vector<TableSpec>& specs) {
  nb::list tables;
  for (AnyTable& table : self.CreateTables(specs)) {
    if (auto* dense = std::get_if<DenseTable>(&table)) {
      tables.append(PyDense{Owned<DenseTable>(new DenseTable(std::move(*dense)))});
    } else {
      tables.append(PySparse{Owned<SparseTable>(new SparseTable(std::get<SparseTable>(std::move(table))))});
    }
  }
  return tables;
}

// `with Trip(client):` the calls of this thread in its body are sent together at its end.
class PyTrip {
 public:
  explicit PyTrip(nb::object client) : client_(std::move(client)) {}

  void Enter() {
    if (trip_) RaiseNamed("InvalidArgumentError", "this Trip is under way already: make another one");
    trip_.reset(new Client::Trip(nb::cast<PyClient&>(client_).client()));
  }
  void Exit() { trip_.reset(); }

 private:
  nb::object client_;
  Owned<Client::Trip> trip_;
};

// A connect that was interrupted goes on by itself, and has perhaps registered already: the same
// connect made again waits for that one, so that no second worker appears.
struct Connecting {
  std::shared_ptr<BlockingCall> call;
  std::shared_ptr<std::unique_ptr<Client>> client = std::make_shared<std::unique_ptr<Client>>();
};
using ConnectKey = std::tuple<std::string, uint16_t, std::string, int32_t>;
using Addresses = std::vector<std::pair<std::string, uint16_t>>;

PyClient Connect(const std::string& host, uint16_t port, const std::string& cluster_id, int32_t rank,
                 int64_t connect_timeout_ms, int64_t call_timeout_ms, const Addresses& more_schedulers) {
  RefuseInForkedChild();
  static auto* abandoned = new std::map<ConnectKey, Connecting>;
  const ConnectKey key(host, port, cluster_id, rank);
  Connecting connecting;
  if (const auto found = abandoned->find(key); found != abandoned->end()) {
    connecting = found->second;
    abandoned->erase(found);
  } else {
    ClientOptions options;
    options.scheduler_host = host;
    options.scheduler_port = port;
    for (const auto& [more_host, more_port] : more_schedulers)
      options.more_schedulers.push_back({more_host, more_port});
    options.cluster_id = cluster_id;
    options.rank = rank;
    if (connect_timeout_ms > 0) options.connect_timeout_ms = connect_timeout_ms;
    if (call_timeout_ms > 0) options.call_timeout_ms = call_timeout_ms;
    options.interrupted = SignalRaised;
    connecting.call = BlockingCall::Start([options, client = connecting.client] {
      Result<std::unique_ptr<Client>> connected = Client::Connect(options);
      if (!connected.ok()) return connected.status();
      *client = std::move(connected).value();
      return Status::Ok();
    });
  }
  try {
    Check(connecting.call->Wait());
  } catch (...) {
    if (connecting.call->abandoned()) abandoned->emplace(key, connecting);
    throw;
  }
  return PyClient(std::move(*connecting.client));
}

}  // namespace

void BindClient(nb::module_& m) {
  const InitTuple zeros = OwnInit("zeros", 0.0, 0.0, 0);
  nb::class_<TableSpec>(m, "TableSpec", "What create_dense and create_sparse take, for create_tables.")
      .def_ro("name", &TableSpec::name)
      .def_static("dense", &DenseSpec, "name"_a, "size"_a, nb::kw_only(), "dtype"_a = "float32",
                  "mode"_a = "sync", "optimizer"_a = "sgd", "flags"_a = 0, "deterministic"_a = false,
                  "non_finite"_a = "reject", "initial_state"_a = 0.0, "segments"_a = std::vector<uint64_t>(),
                  "init"_a = zeros, "wire"_a = "plain", "wire_topk"_a = 0.0, "staleness"_a = kUnbounded)
      .def_static("sparse", &SparseSpec, "name"_a, "dim"_a, nb::kw_only(), "dtype"_a = "float32",
                  "mode"_a = "sync", "optimizer"_a = "sgd", "flags"_a = 0, "deterministic"_a = false,
                  "non_finite"_a = "reject", "initial_state"_a = 0.0, "init"_a = zeros, "wire"_a = "plain",
                  "storage"_a = "float32", "staleness"_a = kUnbounded);
  nb::class_<PyClient>(m, "Client", "A worker's connection to its cluster.")
      .def_prop_ro("rank", [](const PyClient& self) { return self.client().rank(); })
      .def_prop_ro("world_size", [](const PyClient& self) { return self.client().world_size(); })
      .def_prop_ro("server_count", [](const PyClient& self) { return self.client().server_count(); })
      .def_prop_ro("cluster_id", [](const PyClient& self) { return self.client().cluster_id(); })
      .def_prop_ro("incarnation", [](const PyClient& self) { return self.client().incarnation(); })
      .def(
          "live_ranks", [](const PyClient& self) { return self.client().live_ranks(); },
          "Ranks of the workers that are alive now, ascending.")
      .def(
          "traffic",
          [](const PyClient& self) {
            RefuseInForkedChild();
            const Result<Client::Traffic> asked = self.client().traffic();
            Check(asked.status());
            return std::make_pair(asked->sent, asked->received);
          },
          "Bytes sent and received, as they travelled.")
      .def(
          "staleness",
          [](const PyClient& self) {
            RefuseInForkedChild();
            const Result<std::vector<uint64_t>> asked = self.client().staleness();
            Check(asked.status());
            return *asked;
          },
          "How many reads of bounded tables have seen others 0, 1, 2 … steps behind.")
      .def("live_incarnations", [](const PyClient& self) { return self.client().live_incarnations(); })
      .def("create_dense", CreateDenseBy(&DenseSpec), "name"_a, "size"_a, nb::kw_only(),
           "dtype"_a = "float32", "mode"_a = "sync", "optimizer"_a = "sgd", "flags"_a = 0,
           "deterministic"_a = false, "non_finite"_a = "reject", "initial_state"_a = 0.0,
           "segments"_a = std::vector<uint64_t>(), "init"_a = zeros, "wire"_a = "plain", "wire_topk"_a = 0.0,
           "staleness"_a = kUnbounded)
      .def("create_sparse", CreateSparseBy(&SparseSpec), "name"_a, "dim"_a, nb::kw_only(),
           "dtype"_a = "float32", "mode"_a = "sync", "optimizer"_a = "sgd", "flags"_a = 0,
           "deterministic"_a = false, "non_finite"_a = "reject", "initial_state"_a = 0.0, "init"_a = zeros,
           "wire"_a = "plain", "storage"_a = "float32", "staleness"_a = kUnbounded)
      .def("create_tables", &CreateTables, "specs"_a,
           "Many tables at once, in the order of their specs: much faster than one after the other.")
      .def("drop_table", &PyClient::DropTable, "name"_a)
      .def("barrier", &PyClient::Barrier,
           "Opens when every live worker has entered it. If it was interrupted, or has timed out, the next\n"
           "call waits for the same one.")
      .def("finish", &PyClient::Finish, "Everything pushed is acknowledged, then this worker leaves the job.")
      .def("close", &PyClient::Close, "Leaves as a dead worker would, unless it has finished.");
  nb::class_<PyTrip>(m, "Trip", "Calls of this thread on the client's tables, sent together: one round trip.")
      .def(
          "__init__",
          [](PyTrip* self, nb::handle_t<PyClient> client) { new (self) PyTrip(nb::borrow(client)); },
          "client"_a)
      .def("__enter__",
           [](nb::handle self) {
             nb::cast<PyTrip&>(self).Enter();
             return nb::borrow(self);
           })
      .def("__exit__", [](PyTrip& self, const nb::args&) { self.Exit(); });
  m.def("connect", &Connect, "host"_a, "port"_a, nb::kw_only(), "cluster_id"_a = "", "rank"_a = -1,
        "connect_timeout_ms"_a = 0, "call_timeout_ms"_a = 0, "more_schedulers"_a = Addresses(),
        "Joins a cluster as a worker; returns when the cluster is complete. Times of 0 are the defaults.");
}

}  // namespace cairn::python
