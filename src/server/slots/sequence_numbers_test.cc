// What one slot remembers of its clients' numbers, as bytes of a copy: what Save makes comes back, and
// nothing else is taken.
#include "server/slots/sequence_numbers.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace cairn::server {
namespace {

constexpr ClientIndex kWriter{3};
const Status kWhy{Code::kInvalidArgument, "not finite"};

std::vector<std::byte> Bytes(uint64_t last, const std::vector<uint64_t>& refused) {
  ByteWriter out;
  out.Put(last);
  out.Put(uint64_t{refused.size()});
  for (uint64_t seq : refused) {
    out.Put(seq);
    out.Put(static_cast<uint8_t>(kWhy.code()));
    out.PutText(kWhy.message());
  }
  return out.Take();
}

bool Loads(SequenceNumbers& numbers, const std::vector<std::byte>& bytes) {
  ByteReader in(bytes);
  return numbers.Load(&kWriter, in) && in.at_end();
}

TEST(SequenceNumbers, ACopyHasTheLastNumberAndTheRefusals) {
  SequenceNumbers numbers(10);
  numbers.Use(kWriter, Seq{1});
  numbers.UseRefused(kWriter, Seq{2}, kWhy);
  numbers.Use(kWriter, Seq{3});
  ByteWriter out;
  numbers.Save(kWriter, out);
  SequenceNumbers copy(10);
  ASSERT_TRUE(Loads(copy, out.Take()));
  EXPECT_EQ(copy.last(kWriter), Seq{3});
  EXPECT_EQ(copy.RefusalOf(kWriter, Seq{1}), nullptr);
  ASSERT_NE(copy.RefusalOf(kWriter, Seq{2}), nullptr);
  EXPECT_EQ(copy.RefusalOf(kWriter, Seq{2})->message(), kWhy.message());
}

TEST(SequenceNumbers, TheLastNumberMayBeARefusedOne) {
  SequenceNumbers numbers(10);
  EXPECT_TRUE(Loads(numbers, Bytes(2, {1, 2})));
  EXPECT_EQ(numbers.last(kWriter), Seq{2});
}

TEST(SequenceNumbers, NumbersThatDoNotRiseAreNotTaken) {
  for (const auto& [last, refused] : std::vector<std::pair<uint64_t, std::vector<uint64_t>>>{
           {5, {2, 1}}, {5, {2, 2}}, {5, {0}}, {5, {6}}, {0, {1}}}) {
    SequenceNumbers numbers(10);
    EXPECT_FALSE(Loads(numbers, Bytes(last, refused))) << last << " " << refused.size();
  }
}

TEST(SequenceNumbers, AClientThatComesTwiceIsNotTaken) {
  SequenceNumbers numbers(10);
  ASSERT_TRUE(Loads(numbers, Bytes(5, {2})));
  EXPECT_FALSE(Loads(numbers, Bytes(5, {2})));
}

TEST(SequenceNumbersDeathTest, ANumberIsUsedOnce) {
  SequenceNumbers numbers(10);
  numbers.Use(kWriter, Seq{4});
  EXPECT_DEATH(numbers.Use(kWriter, Seq{4}), "broken invariant");
}

}  // namespace
}  // namespace cairn::server
