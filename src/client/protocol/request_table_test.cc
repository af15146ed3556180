// Requests under way: ids, deadlines, and that a caller is told once.
#include "client/protocol/request_table.h"

#include <gtest/gtest.h>

#include <vector>

namespace cairn::client {
namespace {

class RequestTableTest : public ::testing::Test {
 protected:
  uint64_t Add(int64_t deadline_us) {
    RequestRecord record;
    record.request.deadline_us = deadline_us;
    record.request.done = [this](Status status) { told.push_back(status.code()); };
    return table.Add(std::move(record));
  }
  Completions completions;
  RequestTable table{completions};
  std::vector<Code> told;
};

TEST_F(RequestTableTest, DeadlinesComeInOrderAndOnce) {
  const uint64_t late = Add(200), early = Add(100), gone = Add(50), forgotten = Add(60);
  EXPECT_LT(late, early);
  table.Erase(gone);
  table.ForgetDeadline(forgotten);
  EXPECT_EQ(table.NextDue(99), 0u);
  EXPECT_EQ(table.NextDue(500), early);
  EXPECT_EQ(table.NextDue(500), late);
  EXPECT_EQ(table.NextDue(500), 0u);
  EXPECT_NE(table.Find(late), nullptr);  // it goes on
  EXPECT_EQ(table.Find(gone), nullptr);
}

TEST_F(RequestTableTest, ACallerIsToldOnceAndAfterTheEvent) {
  RequestRecord& record = table.At(Add(100));
  table.TellCaller(record, {Code::kDeadlineExceeded, "late"});
  table.TellCaller(record, Status::Ok());
  EXPECT_TRUE(told.empty());
  completions.Run();
  EXPECT_EQ(told, std::vector<Code>{Code::kDeadlineExceeded});
}

TEST_F(RequestTableTest, ATakenRequestIsGoneWithItsDeadline) {
  const uint64_t id = Add(100);
  EXPECT_EQ(table.Take(id).request.deadline_us, 100);
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(table.NextDue(100), 0u);
  EXPECT_GT(table.next_id(), id);
}

}  // namespace
}  // namespace cairn::client
