#include "cluster/environment/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "cairn/client.h"

namespace cairn::cluster {
namespace {

Environment Read(const Variables& variables) {
  Result<Environment> result = ReadEnvironment(variables);
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return result.ok() ? *result : Environment{};
}
std::string ErrorOf(const Variables& variables) {
  const Result<Environment> result = ReadEnvironment(variables);
  return result.ok() ? "no error" : result.status().message();
}
::testing::AssertionResult Has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << text << "\" lacks \"" << part << "\"";
}

TEST(Environment, NothingSetGivesNothing) {
  const Environment out = Read({{"HOME", "/root"}, {"CAIRN_RANK", ""}});
  EXPECT_FALSE(out.role.has_value());
  EXPECT_FALSE(out.scheduler_port.has_value());
  EXPECT_FALSE(out.rank.has_value());
  EXPECT_FALSE(out.hosts_scheduler);
  EXPECT_EQ(out.scheduler(), (wire::Endpoint{"127.0.0.1", 0}));
}

TEST(Environment, CairnVariables) {
  const Environment out = Read({{"CAIRN_ROLE", "server"},
                                {"CAIRN_SCHED_HOST", "sched.local"},
                                {"CAIRN_SCHED_PORT", "9000"},
                                {"CAIRN_NUM_SERVERS", "3"},
                                {"CAIRN_NUM_WORKERS", "5"},
                                {"CAIRN_RANK", "2"},
                                {"CAIRN_HOST", "0.0.0.0"},
                                {"CAIRN_PORT", "9001"},
                                {"CAIRN_CLUSTER_ID", "blue"},
                                {"CAIRN_SERVER_THREADS", "4"},
                                {"CAIRN_SLOTS", "1024"},
                                {"CAIRN_REPLICAS", "3"},
                                {"CAIRN_MIN_IN_SYNC", "2"},
                                {"CAIRN_STATE_DIR", "/var/lib/cairn"},
                                {"CAIRN_HEARTBEAT_MS", "200"},
                                {"CAIRN_DEAD_AFTER_MS", "1500"},
                                {"CAIRN_LOST_AFTER_MS", "9000"},
                                {"CAIRN_REJOIN_GRACE_MS", "77"},
                                {"CAIRN_CONNECT_TIMEOUT_MS", "88"},
                                {"CAIRN_CALL_TIMEOUT_MS", "99"},
                                {"CAIRN_VERBOSE", "2"}});
  EXPECT_EQ(out.role, wire::Role::kServer);
  EXPECT_EQ(out.scheduler(), (wire::Endpoint{"sched.local", 9000}));
  EXPECT_EQ(out.servers, 3u);
  EXPECT_EQ(out.workers, 5u);
  EXPECT_EQ(out.rank, 2u);
  EXPECT_EQ(out.host, "0.0.0.0");
  EXPECT_EQ(out.port, 9001);
  EXPECT_EQ(out.cluster_id, "blue");
  EXPECT_EQ(out.server_threads, 4u);
  EXPECT_EQ(out.slots, 1024u);
  EXPECT_EQ(out.replicas, 3u);
  EXPECT_EQ(out.min_in_sync, 2u);
  EXPECT_EQ(out.state_dir, "/var/lib/cairn");
  EXPECT_EQ(out.heartbeat_ms, 200);
  EXPECT_EQ(out.dead_after_ms, 1500);
  EXPECT_EQ(out.lost_after_ms, 9000);
  EXPECT_EQ(out.rejoin_grace_ms, 77);
  EXPECT_EQ(out.connect_timeout_ms, 88);
  EXPECT_EQ(out.call_timeout_ms, 99);
  EXPECT_EQ(out.verbose, 2u);
}

TEST(Environment, MindSporeVariables) {
  const Variables job = {{"MS_SERVER_NUM", "1"},
                         {"MS_WORKER_NUM", "2"},
                         {"MS_SCHED_HOST", "10.0.0.7"},
                         {"MS_SCHED_PORT", "8118"},
                         {"PS_VERBOSE", "1"}};
  const std::map<std::string, wire::Role> roles = {{"MS_SCHED", wire::Role::kScheduler},
                                                   {"MS_PSERVER", wire::Role::kServer},
                                                   {"MS_WORKER", wire::Role::kWorker}};
  for (const auto& [name, role] : roles) {
    Variables variables = job;
    variables["MS_ROLE"] = name;
    const Environment out = Read(variables);
    EXPECT_EQ(out.role, role);
    EXPECT_EQ(out.scheduler(), (wire::Endpoint{"10.0.0.7", 8118}));
    EXPECT_EQ(out.servers, 1u);
    EXPECT_EQ(out.workers, 2u);
    EXPECT_EQ(out.verbose, 1u);
    EXPECT_FALSE(out.host.has_value());  // servers listen on the interface that routes to the scheduler
    EXPECT_FALSE(out.hosts_scheduler);
  }
}

TEST(Environment, DmlcVariables) {
  const Environment out = Read({{"DMLC_ROLE", "worker"},
                                {"DMLC_PS_ROOT_URI", "10.0.0.7"},
                                {"DMLC_PS_ROOT_PORT", "8000"},
                                {"DMLC_NUM_SERVER", "2"},
                                {"DMLC_NUM_WORKER", "4"},
                                {"DMLC_NODE_HOST", "10.0.0.9"},
                                {"DMLC_RANK", "3"}});
  EXPECT_EQ(out.role, wire::Role::kWorker);
  EXPECT_EQ(out.scheduler(), (wire::Endpoint{"10.0.0.7", 8000}));
  EXPECT_EQ(out.servers, 2u);
  EXPECT_EQ(out.workers, 4u);
  EXPECT_EQ(out.host, "10.0.0.9");
  EXPECT_EQ(out.rank, 3u);
}

Variables PaddleServer(const std::string& ip, const std::string& port) {
  return {{"PADDLE_PSERVERS_IP_PORT_LIST", "10.0.0.1:36000,10.0.0.2:36001"},
          {"TRAINING_ROLE", "PSERVER"},
          {"PADDLE_TRAINERS_NUM", "2"},
          {"POD_IP", ip},
          {"PADDLE_PORT", port}};
}

TEST(Environment, PaddlesFirstServerHostsTheScheduler) {
  const Environment first = Read(PaddleServer("10.0.0.1", "36000"));
  EXPECT_EQ(first.role, wire::Role::kServer);
  EXPECT_TRUE(first.hosts_scheduler);
  EXPECT_EQ(first.rank, 0u);
  EXPECT_EQ(first.servers, 2u);
  EXPECT_EQ(first.workers, 2u);
  EXPECT_EQ(first.scheduler(), (wire::Endpoint{"10.0.0.1", 36000}));
  EXPECT_EQ(first.host, "10.0.0.1");
  EXPECT_EQ(first.port, 36000);

  const Environment second = Read(PaddleServer("10.0.0.2", "36001"));
  EXPECT_FALSE(second.hosts_scheduler);
  EXPECT_EQ(second.rank, 1u);
  EXPECT_EQ(second.scheduler(), (wire::Endpoint{"10.0.0.1", 36000}));
  EXPECT_EQ(second.port, 36001);
}

TEST(Environment, PaddlesServerIsFoundByItsAddressAlone) {
  Variables variables = PaddleServer("10.0.0.2", "");
  EXPECT_EQ(Read(variables).port, 36001);
  variables["POD_IP"] = "10.0.0.3";
  EXPECT_TRUE(Has(ErrorOf(variables), "POD_IP=10.0.0.3"));
  EXPECT_TRUE(Has(ErrorOf(variables), "no entry of PADDLE_PSERVERS_IP_PORT_LIST=10.0.0.1:36000"));
  variables["POD_IP"] = "";
  EXPECT_TRUE(Has(ErrorOf(variables), "match 2 entries"));
}

TEST(Environment, PaddlesTrainer) {
  const Environment out = Read({{"PADDLE_PSERVERS_IP_PORT_LIST", "10.0.0.1:36000,10.0.0.2:36001"},
                                {"TRAINING_ROLE", "TRAINER"},
                                {"PADDLE_TRAINERS_NUM", "2"},
                                {"PADDLE_TRAINER_ID", "1"},
                                {"POD_IP", "10.0.0.2"}});
  EXPECT_EQ(out.role, wire::Role::kWorker);
  EXPECT_EQ(out.rank, 1u);
  EXPECT_FALSE(out.hosts_scheduler);
  EXPECT_FALSE(out.host.has_value());
  EXPECT_EQ(out.scheduler(), (wire::Endpoint{"10.0.0.1", 36000}));
}

TEST(Environment, PodIpAloneMeansNothing) {
  const Environment out = Read({{"POD_IP", "10.0.0.2"}, {"CAIRN_SCHED_PORT", "9000"}});
  EXPECT_FALSE(out.host.has_value());
}

TEST(Environment, FamiliesMayAgree) {
  const Environment out = Read({{"CAIRN_ROLE", "worker"},
                                {"MS_ROLE", "MS_WORKER"},
                                {"DMLC_ROLE", "worker"},
                                {"CAIRN_SCHED_PORT", "9000"},
                                {"MS_SCHED_PORT", "9000"},
                                {"DMLC_PS_ROOT_PORT", "9000"}});
  EXPECT_EQ(out.role, wire::Role::kWorker);
  EXPECT_EQ(out.scheduler_port, 9000);
}

TEST(Environment, ConflictsNameBothVariablesAndBothValues) {
  std::string error = ErrorOf({{"CAIRN_SCHED_PORT", "9000"}, {"MS_SCHED_PORT", "9001"}});
  EXPECT_TRUE(Has(error, "CAIRN_SCHED_PORT=9000")) << error;
  EXPECT_TRUE(Has(error, "MS_SCHED_PORT=9001")) << error;
  error = ErrorOf({{"MS_ROLE", "MS_WORKER"}, {"DMLC_ROLE", "server"}});
  EXPECT_TRUE(Has(error, "MS_ROLE=MS_WORKER")) << error;
  EXPECT_TRUE(Has(error, "DMLC_ROLE=server")) << error;
  error = ErrorOf({{"CAIRN_NUM_SERVERS", "3"}, {"PADDLE_PSERVERS_IP_PORT_LIST", "a:1,b:2"}});
  EXPECT_TRUE(Has(error, "CAIRN_NUM_SERVERS=3")) << error;
  EXPECT_TRUE(Has(error, "PADDLE_PSERVERS_IP_PORT_LIST=a:1,b:2")) << error;
  error = ErrorOf({{"PADDLE_TRAINERS_NUM", "2"}, {"MS_WORKER_NUM", "3"}});
  EXPECT_TRUE(Has(error, "MS_WORKER_NUM=3")) << error;
  EXPECT_TRUE(Has(error, "PADDLE_TRAINERS_NUM=2")) << error;
  Variables server = PaddleServer("10.0.0.2", "36001");
  server["CAIRN_RANK"] = "0";
  EXPECT_TRUE(Has(ErrorOf(server), "CAIRN_RANK=0 and PADDLE_PSERVERS_IP_PORT_LIST="));
  error = ErrorOf({{"CAIRN_VERBOSE", "1"}, {"PS_VERBOSE", "2"}});
  EXPECT_TRUE(Has(error, "CAIRN_VERBOSE=1 and PS_VERBOSE=2")) << error;
}

TEST(Environment, MalformedValuesNameTheVariable) {
  const Variables bad = {
      {"CAIRN_ROLE", "boss"},          {"CAIRN_SCHED_PORT", "65536"}, {"CAIRN_SCHED_HOST", "two words"},
      {"CAIRN_NUM_SERVERS", "0"},      {"CAIRN_NUM_WORKERS", "-1"},   {"CAIRN_RANK", "1x"},
      {"CAIRN_SERVER_THREADS", "0"},   {"CAIRN_SLOTS", "65537"},      {"CAIRN_HEARTBEAT_MS", "0"},
      {"CAIRN_CALL_TIMEOUT_MS", " 1"}, {"MS_ROLE", "scheduler"},      {"MS_SERVER_NUM", "two"},
      {"DMLC_ROLE", "MS_WORKER"},      {"DMLC_NUM_WORKER", "1e3"},    {"TRAINING_ROLE", "SCHEDULER"},
      {"PADDLE_TRAINERS_NUM", "0x2"},  {"PS_VERBOSE", "yes"}};
  for (const auto& [variable, value] : bad) {
    const std::string error = ErrorOf({{variable, value}});
    EXPECT_TRUE(Has(error, variable + "=" + value)) << variable;
  }
  for (const char* list :
       {"10.0.0.1", "10.0.0.1:", ":1", "a:1,", "a:1,,b:2", "a:0", "a:70000", "a:1,a:1", "::1:80"}) {
    EXPECT_TRUE(Has(ErrorOf({{"PADDLE_PSERVERS_IP_PORT_LIST", list}}), "PADDLE_PSERVERS_IP_PORT_LIST"))
        << list;
  }
}

// A slot that moves has one owner more for a while, so the scheduler takes one fewer than a state can hold.
TEST(Environment, AsManyReplicasAsTheSchedulerTakes) {
  EXPECT_EQ(Read({{"CAIRN_REPLICAS", "7"}, {"CAIRN_MIN_IN_SYNC", "7"}}).replicas, 7u);
  for (const std::string name : {"CAIRN_REPLICAS", "CAIRN_MIN_IN_SYNC"})
    EXPECT_TRUE(Has(ErrorOf({{name, "8"}}), name + "=8"));
}

TEST(Environment, SeveralSchedulers) {
  const Environment out = Read({{"CAIRN_SCHEDULER", "a:1,[::1]:2,c:3"}, {"CAIRN_META", "etcd://e:4"}});
  EXPECT_EQ(out.scheduler(), (wire::Endpoint{"a", 1}));
  EXPECT_EQ(out.standbys, (std::vector<wire::Endpoint>{{"::1", 2}, {"c", 3}}));
  EXPECT_EQ(out.schedulers().size(), 3u);
  EXPECT_EQ(out.meta, "etcd://e:4");
  EXPECT_TRUE(RequireScheduler(out).ok());
  const Environment one =
      Read({{"CAIRN_SCHEDULER", "a:1"}, {"CAIRN_SCHED_HOST", "a"}, {"MS_SCHED_PORT", "1"}});
  EXPECT_TRUE(one.standbys.empty());
  EXPECT_EQ(one.schedulers(), std::vector<wire::Endpoint>(1, {"a", 1}));
  for (const char* bad : {"a", "a:0", "a:1,", "a:1,a:1", ",a:1", "a:1;b:2"})
    EXPECT_TRUE(Has(ErrorOf({{"CAIRN_SCHEDULER", bad}}), "CAIRN_SCHEDULER")) << bad;
  const std::string error = ErrorOf({{"CAIRN_SCHEDULER", "a:1,b:2"}, {"CAIRN_SCHED_PORT", "2"}});
  EXPECT_TRUE(Has(error, "CAIRN_SCHED_PORT=2 and CAIRN_SCHEDULER=a:1,b:2")) << error;
}

TEST(Environment, WhereTheStateIs) {
  const Result<scheduler::EtcdOptions> full = ParseMeta("--meta", "etcd://a:1,[::1]:2/jobs/one/");
  ASSERT_TRUE(full.ok()) << full.status().ToString();
  EXPECT_EQ(full->members, (std::vector<wire::Endpoint>{{"a", 1}, {"::1", 2}}));
  EXPECT_EQ(full->prefix, "/jobs/one");
  for (const char* plain : {"etcd://a:1", "etcd://a:1/", "etcd://a:1//"})
    EXPECT_EQ(ParseMeta("--meta", plain)->prefix, "") << plain;
  for (const char* bad : {"", "a:1", "http://a:1", "etcd://", "etcd:///x", "etcd://a", "etcd://a:1,",
                          "etcd://a:1/b c", "etcd://a:1,a:1"}) {
    const Result<scheduler::EtcdOptions> parsed = ParseMeta("--meta", bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_TRUE(Has(parsed.status().message(), "--meta"));
  }
}

TEST(Environment, ADeadlineThatHealthyNodesWouldMissIsRefused) {
  const std::string error = ErrorOf({{"CAIRN_HEARTBEAT_MS", "1000"}, {"CAIRN_DEAD_AFTER_MS", "1500"}});
  EXPECT_TRUE(Has(error, "CAIRN_DEAD_AFTER_MS=1500")) << error;
  EXPECT_TRUE(Has(error, "CAIRN_HEARTBEAT_MS=1000")) << error;
}

TEST(Environment, AMissingSchedulerNamesWhatToSet) {
  const Status status = RequireScheduler(Read({{"CAIRN_SCHED_HOST", "10.0.0.1"}}));
  for (const char* name :
       {"CAIRN_SCHED_PORT", "MS_SCHED_PORT", "DMLC_PS_ROOT_PORT", "PADDLE_PSERVERS_IP_PORT_LIST"}) {
    EXPECT_TRUE(Has(status.message(), name));
  }
  EXPECT_TRUE(RequireScheduler(Read({{"CAIRN_SCHED_PORT", "1"}})).ok());
}

TEST(Environment, ALauncherStartsFromACleanSlateAndKeepsSettings) {
  Variables variables = PaddleServer("10.0.0.1", "36000");
  variables.insert(
      {{"CAIRN_ROLE", "worker"}, {"MS_ROLE", "MS_SCHED"}, {"DMLC_RANK", "7"}, {"CAIRN_SLOTS", "64"}});
  RemoveRoleVariables(variables);
  const Environment out = Read(variables);
  EXPECT_FALSE(out.role || out.rank || out.scheduler_host || out.servers || out.workers || out.host ||
               out.port);
  EXPECT_EQ(out.slots, 64u);
}

TEST(Environment, Endpoints) {
  EXPECT_EQ(*ParseEndpoint("x", "host:1"), (wire::Endpoint{"host", 1}));
  EXPECT_EQ(*ParseEndpoint("x", "[::1]:65535"), (wire::Endpoint{"::1", 65535}));
  for (const char* text :
       {"", ":", "host", "host:", "host:x", ":1", "[]:1", "::1:1", "ho st:1", "host:65536"}) {
    EXPECT_FALSE(ParseEndpoint("--scheduler", text).ok()) << text;
  }
}

// Sets variables of this process for one test.
class ProcessEnvironment : public ::testing::Test {
 protected:
  void Set(const char* name, const char* value) {
    setenv(name, value, 1);
    names_.push_back(name);
  }
  void TearDown() override {
    for (const char* name : names_) unsetenv(name);
  }
  std::vector<const char*> names_;
};

TEST_F(ProcessEnvironment, GivesAWorkersOptions) {
  Set("CAIRN_ROLE", "worker");
  Set("CAIRN_SCHED_PORT", "9000");
  Set("CAIRN_RANK", "3");
  Set("CAIRN_CLUSTER_ID", "blue");
  Set("CAIRN_CALL_TIMEOUT_MS", "1234");
  Set("CAIRN_SCHEDULER", "127.0.0.1:9000,127.0.0.1:9001");
  const Result<ClientOptions> options = ClientOptions::FromEnvironment();
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->scheduler_host, "127.0.0.1");
  EXPECT_EQ(options->scheduler_port, 9000);
  ASSERT_EQ(options->more_schedulers.size(), 1u);
  EXPECT_EQ(options->more_schedulers[0].port, 9001);
  EXPECT_EQ(options->rank, 3);
  EXPECT_EQ(options->cluster_id, "blue");
  EXPECT_EQ(options->call_timeout_ms, 1234);
  EXPECT_EQ(options->connect_timeout_ms, ClientOptions{}.connect_timeout_ms);
}

TEST_F(ProcessEnvironment, AServerIsNoClient) {
  Set("CAIRN_ROLE", "server");
  Set("CAIRN_SCHED_PORT", "9000");
  const Result<ClientOptions> options = ClientOptions::FromEnvironment();
  ASSERT_FALSE(options.ok());
  EXPECT_TRUE(Has(options.status().message(), "cairn server"));
}

}  // namespace
}  // namespace cairn::cluster
