// The store and the election over an etcd in memory: every way in which an outcome can be unknown,
// leaders that were replaced, writers that keep to no protocol.
#include "scheduler/metastore/etcd_store.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>

#include "scheduler/metastore/etcd_election.h"
#include "scheduler/metastore/memory_kv.h"

namespace cairn::scheduler {
namespace {
using Fate = MemoryKv::Fate;

std::vector<std::byte> Bytes(const std::string& text) {
  auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// One scheduler: its client, its election, its store, and a script of what becomes of its calls.
struct Candidate {
  Candidate(MemoryEtcd& shared, std::string name)
      : etcd(shared),
        kv(shared,
           [this](const std::string& call) {
             calls.push_back(call);
             if (on_call) on_call(call);
             if (fates.empty()) return otherwise;
             const Fate fate = fates.front();
             fates.pop_front();
             return fate;
           }),
        election(kv, {.prefix = "/job", .address = std::move(name)}) {}

  int64_t Win() {
    auto standing = election.Campaign();
    EXPECT_TRUE(standing.ok()) << standing.status().ToString();
    EXPECT_GT(standing->revision, 0);
    Open(standing->revision);
    return standing->revision;
  }
  void Open(int64_t revision) {
    EtcdStoreOptions options;
    options.prefix = "/job";
    options.leader_revision = revision;
    options.now_us = [this] { return now_us; };
    options.pause = [this](int64_t us) {
      now_us += us;
      if (on_pause) on_pause();
    };
    store = std::make_unique<EtcdStore>(kv, options);
    records = store->Load();
  }
  Status Append(const std::string& text) { return store->Append(Bytes(text)); }
  int64_t lease() const { return etcd.Get("/job/leader")->lease; }
  std::string record() const { return etcd.Get("/job/record").value_or(KvEntry{}).value; }

  MemoryEtcd& etcd;
  std::deque<Fate> fates;        // of the next calls
  Fate otherwise = Fate::kFine;  // of those after them
  std::vector<std::string> calls;
  std::function<void(const std::string&)> on_call;
  std::function<void()> on_pause;
  int64_t now_us = 0;
  MemoryKv kv;
  EtcdElection election;
  std::unique_ptr<EtcdStore> store;
  Result<std::vector<std::vector<std::byte>>> records{Status(Code::kInternal, "not loaded")};
};

struct EtcdStoreTest : ::testing::Test {
  MemoryEtcd etcd;
  Candidate a{etcd, "a:1"}, b{etcd, "b:2"};
};

TEST_F(EtcdStoreTest, TheNextLeaderFindsTheNewestRecordAlone) {
  a.Win();
  EXPECT_TRUE(a.records->empty());
  ASSERT_TRUE(a.Append("one").ok());
  ASSERT_TRUE(a.Append("two").ok());
  ASSERT_TRUE(a.store->Replace(Bytes("three")).ok());
  a.election.Resign();
  b.Win();
  ASSERT_EQ(b.records->size(), 1u);
  EXPECT_EQ((*b.records)[0], Bytes("three"));
  ASSERT_TRUE(b.Append("four").ok());
  EXPECT_EQ(b.record(), "four");
}

TEST_F(EtcdStoreTest, ARecordMayHaveAnyBytes) {
  a.Win();
  const std::string bytes("\0\xff\n\"", 4);
  ASSERT_TRUE(a.Append(bytes).ok());
  EXPECT_EQ(a.record(), bytes);
}

TEST_F(EtcdStoreTest, AWriteThatNeverArrivedIsWrittenAgain) {
  a.Win();
  ASSERT_TRUE(a.Append("one").ok());
  a.fates = {Fate::kRequestLost};
  EXPECT_TRUE(a.Append("two").ok());
  EXPECT_EQ(a.record(), "two");
  EXPECT_TRUE(a.Append("three").ok()) << "its idea of the record's revision is right";
}

TEST_F(EtcdStoreTest, AWriteWhoseAnswerWasLostIsFoundAndNotWrittenTwice) {
  a.Win();
  ASSERT_TRUE(a.Append("one").ok());
  a.fates = {Fate::kAnswerLost};
  const int64_t before = etcd.revision();
  EXPECT_TRUE(a.Append("two").ok());
  EXPECT_EQ(etcd.revision(), before + 1);
  EXPECT_EQ(a.record(), "two");
  EXPECT_TRUE(a.Append("three").ok());
}

TEST_F(EtcdStoreTest, TheFirstWriteMayBeUnknownToo) {
  a.Win();
  a.fates = {Fate::kAnswerLost};
  EXPECT_TRUE(a.Append("one").ok());
  EXPECT_TRUE(a.Append("two").ok());
  EXPECT_EQ(a.record(), "two");
}

// The read says "not written", and the request arrives after that: before the second try ...
TEST_F(EtcdStoreTest, AWriteThatArrivesBetweenTheReadAndTheSecondTryCountsOnce) {
  a.Win();
  ASSERT_TRUE(a.Append("one").ok());
  a.fates = {Fate::kLate};
  a.on_pause = [&] { (void)a.kv.DeliverLate(); };
  const int64_t before = etcd.revision();
  EXPECT_TRUE(a.Append("two").ok());
  EXPECT_EQ(etcd.revision(), before + 1);
  EXPECT_TRUE(a.Append("three").ok());
  EXPECT_EQ(a.record(), "three");
}

// ... or long after it.
TEST_F(EtcdStoreTest, AWriteThatArrivesAfterItsSecondTryChangesNothing) {
  a.Win();
  ASSERT_TRUE(a.Append("one").ok());
  a.fates = {Fate::kLate};
  ASSERT_TRUE(a.Append("two").ok());
  ASSERT_TRUE(a.Append("three").ok());
  const auto late = a.kv.DeliverLate();
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].outcome, KvOutcome::kCompareFailed);
  EXPECT_EQ(a.record(), "three");
  EXPECT_TRUE(a.Append("four").ok());
}

TEST_F(EtcdStoreTest, ALeaderFindsOutThatItWasReplacedWithoutWriting) {
  a.Win();
  ASSERT_TRUE(a.Append("one").ok());
  EXPECT_TRUE(a.store->Confirm().ok());
  a.fates = {Fate::kRequestLost};
  EXPECT_EQ(a.store->Confirm().code(), Code::kUnavailable);
  EXPECT_TRUE(a.Append("two").ok()) << "not to know it breaks nothing";
  etcd.EndLease(a.lease());
  b.Win();
  const int64_t before = etcd.revision();
  EXPECT_EQ(a.store->Confirm().code(), Code::kRetired);
  EXPECT_EQ(a.Append("three").code(), Code::kRetired);
  EXPECT_EQ(etcd.revision(), before);
  EXPECT_TRUE(b.store->Confirm().ok());
}

TEST_F(EtcdStoreTest, ALateWriteOfAReplacedLeaderChangesNothing) {
  a.Win();
  ASSERT_TRUE(a.Append("one").ok());
  a.fates = {Fate::kLate};
  a.otherwise = Fate::kRequestLost;
  EXPECT_EQ(a.Append("two of a").code(), Code::kOutcomeUnknown);
  etcd.EndLease(a.lease());
  b.Win();
  EXPECT_EQ((*b.records)[0], Bytes("one"));
  const auto late = a.kv.DeliverLate();
  EXPECT_EQ(late[0].outcome, KvOutcome::kCompareFailed);
  ASSERT_TRUE(b.Append("two of b").ok());
  EXPECT_EQ(b.record(), "two of b");
}

// It arrives after the new leader has won and before that one has read: the new leader's key is
// there already, so it fails all the same.
TEST_F(EtcdStoreTest, ALateWriteBetweenElectionAndLoadChangesNothing) {
  a.Win();
  ASSERT_TRUE(a.Append("one").ok());
  a.fates = {Fate::kLate};
  a.otherwise = Fate::kRequestLost;
  EXPECT_FALSE(a.Append("two of a").ok());
  etcd.EndLease(a.lease());
  auto standing = b.election.Campaign();
  ASSERT_TRUE(standing.ok());
  EXPECT_EQ(a.kv.DeliverLate()[0].outcome, KvOutcome::kCompareFailed);
  b.Open(standing->revision);
  EXPECT_EQ((*b.records)[0], Bytes("one"));
}

TEST_F(EtcdStoreTest, AnOutcomeThatStaysUnknownBreaksTheStoreInTime) {
  a.Win();
  ASSERT_TRUE(a.Append("one").ok());
  a.otherwise = Fate::kRequestLost;
  const Status status = a.Append("two");
  EXPECT_EQ(status.code(), Code::kOutcomeUnknown);
  EXPECT_NE(status.message().find("etcd did not answer"), std::string::npos) << status.message();
  EXPECT_GE(a.now_us, 10'000'000);
  EXPECT_LT(a.now_us, 11'000'000);
  a.otherwise = Fate::kFine;
  EXPECT_EQ(a.Append("three"), status) << "it does not come back to life";
  EXPECT_EQ(a.record(), "one");
}

TEST_F(EtcdStoreTest, AnEtcdThatAnswersAgainInTimeBreaksNothing) {
  a.Win();
  ASSERT_TRUE(a.Append("one").ok());
  a.fates.assign(40, Fate::kRequestLost);
  EXPECT_TRUE(a.Append("two").ok());
  EXPECT_EQ(a.record(), "two");
}

TEST_F(EtcdStoreTest, AReplacedLeaderCanChangeNothingAndSaysWhoLeads) {
  a.Win();
  ASSERT_TRUE(a.Append("one").ok());
  etcd.EndLease(a.lease());
  b.Win();
  const Status status = a.Append("two of a");
  EXPECT_EQ(status.code(), Code::kRetired);
  EXPECT_NE(status.message().find("b:2"), std::string::npos) << status.message();
  EXPECT_EQ(b.record(), "one");
  ASSERT_TRUE(b.Append("two of b").ok());
  b.election.Resign();
  EXPECT_EQ(a.Append("three of a").code(), Code::kRetired) << "also when nobody leads";
  EXPECT_EQ(b.record(), "two of b");
}

TEST_F(EtcdStoreTest, ALostLeaseEndsTheLeaderWithItsNextWrite) {
  a.Win();
  ASSERT_TRUE(a.Append("one").ok());
  etcd.EndLease(a.lease());
  EXPECT_EQ(a.Append("two").code(), Code::kRetired);
  EXPECT_EQ(a.record(), "one");
}

TEST_F(EtcdStoreTest, AWriteThatWasReplacedWhileUnknownIsNotTakenForWritten) {
  a.Win();
  ASSERT_TRUE(a.Append("one").ok());
  a.fates = {Fate::kRequestLost, Fate::kRequestLost};  // the write, and the first question
  a.on_pause = [&] {
    a.on_pause = nullptr;
    etcd.EndLease(a.lease());
    b.Win();
    ASSERT_TRUE(b.Append("two of b").ok());
  };
  EXPECT_EQ(a.Append("two of a").code(), Code::kRetired);
  EXPECT_EQ(b.record(), "two of b");
}

// A Load that was answered with an old record (an etcd that does not keep its word, or another's
// write in between) must not overwrite the newer one.
TEST_F(EtcdStoreTest, AStaleReadDoesNotOverwriteWhatIsNewer) {
  a.Win();
  ASSERT_TRUE(a.Append("one").ok());
  a.election.Resign();
  b.Win();  // has read "one"
  KvTxn txn;
  txn.puts = {{"/job/record", "two"}};
  ASSERT_EQ(etcd.Apply(txn).outcome, KvOutcome::kSucceeded);
  const Status status = b.Append("three");
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_NE(status.message().find("/job/record"), std::string::npos) << status.message();
  EXPECT_EQ(b.record(), "two");
}

TEST_F(EtcdStoreTest, ARecordThatSomebodyDeletedIsNoticed) {
  a.Win();
  ASSERT_TRUE(a.Append("one").ok());
  KvTxn txn;
  txn.deletes = {"/job/record"};
  (void)etcd.Apply(txn);
  EXPECT_EQ(a.Append("two").code(), Code::kIo);
  EXPECT_FALSE(etcd.Get("/job/record").has_value());
}

TEST_F(EtcdStoreTest, LoadWaitsForAnAnswerAndGivesUpInTime) {
  a.Win();
  ASSERT_TRUE(a.Append("one").ok());
  a.fates.assign(20, Fate::kRequestLost);
  a.Open(1);
  ASSERT_TRUE(a.records.ok());
  EXPECT_EQ(a.records->size(), 1u);
  a.otherwise = Fate::kRequestLost;
  a.Open(1);
  EXPECT_EQ(a.records.status().code(), Code::kUnavailable);
  EXPECT_FALSE(a.Append("two").ok());
}

TEST_F(EtcdStoreTest, OneLeadsAndTheOthersAreToldWhere) {
  a.Win();
  auto standing = b.election.Campaign();
  ASSERT_TRUE(standing.ok());
  EXPECT_EQ(standing->revision, 0);
  EXPECT_EQ(standing->leader, "a:1");
  EXPECT_TRUE(*a.election.KeepAlive());
  etcd.EndLease(a.lease());
  b.Win();
  EXPECT_FALSE(*a.election.KeepAlive());
  EXPECT_TRUE(*b.election.KeepAlive());
  EXPECT_EQ(a.election.Campaign()->leader, "b:2") << "what it once won does not count any more";
}

TEST_F(EtcdStoreTest, TwoThatTryAtOnceDoNotBothWin) {
  // b wins after a has seen that nobody leads and before a's transaction.
  a.on_call = [&](const std::string& call) {
    if (call != "txn") return;
    a.on_call = nullptr;
    b.Win();
  };
  auto standing = a.election.Campaign();
  ASSERT_TRUE(standing.ok());
  EXPECT_EQ(standing->revision, 0);
  EXPECT_EQ(a.election.Campaign()->leader, "b:2");
}

TEST_F(EtcdStoreTest, AWinThatWasNotHeardOfIsFoundByTheNextTry) {
  a.fates = {Fate::kFine, Fate::kFine, Fate::kAnswerLost};  // range, grant, txn
  EXPECT_FALSE(a.election.Campaign().ok());
  const int64_t revision = a.Win();
  EXPECT_EQ(revision, etcd.Get("/job/leader")->create_revision);
  EXPECT_TRUE(a.Append("one").ok());
}

TEST_F(EtcdStoreTest, ALateTryCanNotLeadOnceItsMakerHasTriedAgain) {
  a.fates = {Fate::kFine, Fate::kFine, Fate::kLate};
  EXPECT_FALSE(a.election.Campaign().ok());
  a.Win();
  const KvEntry before = *etcd.Get("/job/leader");
  EXPECT_NE(a.kv.DeliverLate()[0].outcome, KvOutcome::kSucceeded);
  EXPECT_EQ(*etcd.Get("/job/leader"), before);
  EXPECT_EQ(etcd.Leases().size(), 1u) << "the first try's lease is not left behind";
  EXPECT_TRUE(a.Append("one").ok());
}

TEST_F(EtcdStoreTest, AKeepAliveThatIsNotAnsweredSaysNothing) {
  a.Win();
  a.fates = {Fate::kRequestLost};
  EXPECT_FALSE(a.election.KeepAlive().ok());
  EXPECT_TRUE(*a.election.KeepAlive());
  etcd.EndLease(a.lease());
  a.fates = {Fate::kFine, Fate::kRequestLost};  // the lease is gone, the key could not be read
  EXPECT_FALSE(a.election.KeepAlive().ok());
  EXPECT_FALSE(*a.election.KeepAlive());
}

// Three schedulers, every call at the mercy of a seed, leases that end at any moment. A record is
// the list of everything that was ever decided; whatever a leader was told is written must be in
// every later record, whoever wrote that one.
class Fight {
 public:
  explicit Fight(uint64_t seed) : random_(seed) {
    for (auto& one : all_) Start(one);
  }
  void Step() {
    Scheduler& one = all_[random_() % 3];
    if (random_() % 20 == 0) EndSomeLeases();
    one.leads ? Write(one) : Campaign(one);
    const std::string record = etcd_.Get("/job/record").value_or(KvEntry{}).value;
    for (const std::string& number : acknowledged) {
      ASSERT_NE((record + ",").find("," + number + ","), std::string::npos)
          << number << " is lost: " << record;
    }
  }
  std::vector<std::string> acknowledged;
  int taken_over = 0;

 private:
  struct Scheduler {
    std::unique_ptr<Candidate> candidate;
    bool leads = false;
    std::string record;
  };

  void Start(Scheduler& one) {
    one = {std::make_unique<Candidate>(etcd_, "address"), false, ""};
    Candidate* candidate = one.candidate.get();
    candidate->on_call = [this, candidate](const std::string&) {
      candidate->otherwise = random_() % 4 == 0 ? static_cast<Fate>(1 + random_() % 3) : Fate::kFine;
    };
    candidate->on_pause = [this, candidate] {
      if (random_() % 2 == 0) (void)candidate->kv.DeliverLate();
    };
  }
  void EndSomeLeases() {
    for (int64_t lease : etcd_.Leases()) {
      if (random_() % 2 == 0) etcd_.EndLease(lease);
    }
  }
  void Campaign(Scheduler& one) {
    const auto standing = one.candidate->election.Campaign();
    if (!standing.ok() || standing->revision == 0) return;
    one.candidate->Open(standing->revision);
    if (!one.candidate->records.ok()) return Start(one);
    one.leads = true;
    for (const auto& record : *one.candidate->records) {
      one.record.assign(reinterpret_cast<const char*>(record.data()), record.size());
      ++taken_over;
    }
  }
  void Write(Scheduler& one) {
    const std::string number = std::to_string(++number_);
    one.record += "," + number;
    if (one.candidate->Append(one.record).ok()) return acknowledged.push_back(number);
    (void)one.candidate->kv.DeliverLate();
    Start(one);
  }

  std::mt19937_64 random_;
  MemoryEtcd etcd_;
  Scheduler all_[3];
  uint64_t number_ = 0;
};

TEST(EtcdStoreFight, WhatWasAcknowledgedIsNeverLost) {
  int taken_over = 0;
  for (uint64_t seed = 1; seed <= 300 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Fight fight(seed);
    for (int step = 0; step < 200 && !::testing::Test::HasFailure(); ++step) fight.Step();
    EXPECT_GT(fight.acknowledged.size(), 10u);
    taken_over += fight.taken_over;
  }
  EXPECT_GT(taken_over, 300);
}

}  // namespace
}  // namespace cairn::scheduler
