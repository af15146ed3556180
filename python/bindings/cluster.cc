#include "cluster.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "cairn/embedded.h"
#include "cluster/environment/environment.h"
#include "forked.h"
#include "raising.h"
#include "waiting.h"
#include "wire/control.h"
#include "wire/frame.h"

namespace cairn::python {
namespace nb = nanobind;
using nb::literals::operator""_a;
namespace {

struct SharedCluster {
  std::unique_ptr<EmbeddedCluster> cluster;
  Running running;
};

class PyCluster {
 public:
  PyCluster(uint32_t servers, uint32_t workers, uint32_t threads_per_server, const std::string& host,
            uint16_t port, const std::string& advertise_host, const std::string& cluster_id) {
    RefuseInForkedChild();
    EmbeddedOptions options = Take(EmbeddedOptions::FromEnvironment());
    options.servers = servers;
    options.workers = workers;
    if (threads_per_server > 0) options.threads_per_server = threads_per_server;
    options.host = host;
    options.port = port;
    options.advertise_host = advertise_host;
    if (!cluster_id.empty()) options.cluster_id = cluster_id;
    std::optional<Result<std::unique_ptr<EmbeddedCluster>>> started;
    {
      nb::gil_scoped_release released;
      started = EmbeddedCluster::Start(options);
    }
    shared_.reset(new std::shared_ptr<SharedCluster>(new SharedCluster{Take(std::move(*started)), {}}));
    host_ = (*shared_)->cluster->scheduler_host();
    port_ = (*shared_)->cluster->scheduler_port();
  }

  const std::string& host() const { return host_; }
  uint16_t port() const { return port_; }

  // True when the job is over.
  bool Wait(int64_t timeout_ms) {
    RefuseInForkedChild();
    if (!*shared_) return true;
    if (!wait_) wait_ = BlockingCall::Start([shared = *shared_] { return shared->cluster->Wait(); });
    return wait_->WaitFor(timeout_ms).has_value();
  }

  void Stop() {
    if (Forked() || !*shared_) return;
    std::shared_ptr<SharedCluster> last = std::move(*shared_);
    shared_->reset();
    nb::gil_scoped_release released;
    last->cluster->Stop();
    last.reset();
  }

 private:
  Owned<std::shared_ptr<SharedCluster>> shared_;
  std::shared_ptr<BlockingCall> wait_;
  std::string host_;
  uint16_t port_ = 0;
};

const char* RoleName(wire::Role role) {
  switch (role) {
    case wire::Role::kScheduler: return "scheduler";
    case wire::Role::kServer: return "server";
    default: return "worker";
  }
}

template <class T>
nb::object OrNone(const std::optional<T>& value) {
  return value ? nb::cast(*value) : nb::none();
}

nb::dict ReadEnvironment(const std::vector<std::string>& without, const cluster::Variables& given) {
  cluster::Variables variables = cluster::ProcessVariables();
  for (const std::string& name : without) variables.erase(name);
  for (const auto& [name, value] : given) variables[name] = value;
  const cluster::Environment environment = Take(cluster::ReadEnvironment(variables));
  nb::dict out;
  out["role"] = environment.role ? nb::cast(RoleName(*environment.role)) : nb::none();
  out["scheduler_host"] = OrNone(environment.scheduler_host);
  out["scheduler_port"] = OrNone(environment.scheduler_port);
  std::vector<std::pair<std::string, uint16_t>> standbys;
  for (const wire::Endpoint& standby : environment.standbys)
    standbys.emplace_back(standby.host, standby.port);
  out["more_schedulers"] = nb::cast(standbys);
  out["servers"] = OrNone(environment.servers);
  out["workers"] = OrNone(environment.workers);
  out["rank"] = OrNone(environment.rank);
  out["host"] = OrNone(environment.host);
  out["cluster_id"] = OrNone(environment.cluster_id);
  out["server_threads"] = OrNone(environment.server_threads);
  out["connect_timeout_ms"] = OrNone(environment.connect_timeout_ms);
  out["call_timeout_ms"] = OrNone(environment.call_timeout_ms);
  return out;
}

nb::bytes AbortMessage(const std::string& reason) {
  BufferPool pool;
  const Buffer bytes = wire::Flatten(*wire::EncodeControl(wire::AbortJob{reason}, pool), pool);
  return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

void BindCluster(nb::module_& m) {
  nb::class_<PyCluster>(m, "EmbeddedCluster", "A scheduler and servers on threads of this process.")
      .def(nb::init<uint32_t, uint32_t, uint32_t, const std::string&, uint16_t, const std::string&,
                    const std::string&>(),
           "servers"_a = 1, "workers"_a = 1, "threads_per_server"_a = 0, "host"_a = "", "port"_a = 0,
           "advertise_host"_a = "", "cluster_id"_a = "",
           "Other settings come from CAIRN_* variables; threads_per_server too, where it is 0.")
      .def_prop_ro("scheduler_host", &PyCluster::host, "By which this process reaches the scheduler.")
      .def_prop_ro("scheduler_port", &PyCluster::port)
      .def("wait", &PyCluster::Wait, "timeout_ms"_a, "Waits for the end of the job; true if it is over.")
      .def("stop", &PyCluster::Stop, "Ends scheduler and servers; calls of clients under way get errors.");
  m.def("read_environment", &ReadEnvironment, nb::kw_only(), "without"_a = std::vector<std::string>(),
        "given"_a = cluster::Variables(),
        "What CAIRN_*, MS_*, PADDLE_* and DMLC_* variables say about this process; None where nothing. As if "
        "those of `without` were not set and those of `given` were.");
  m.def("abort_message", &AbortMessage, "reason"_a,
        "Bytes which, sent to a scheduler, end its job as failed with this reason.");
}

}  // namespace cairn::python
