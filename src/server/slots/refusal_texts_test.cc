// What is refused and in which words: shapes, settings, and how workers of a round differ.
#include "server/slots/refusal_texts.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "server/slots/round_terms.h"

namespace cairn::server {
namespace {

TableSpec RefusingSpec(TableKind kind, OptimizerKind optimizer = OptimizerKind::kSgd) {
  TableSpec spec;
  spec.name = "w";
  spec.kind = kind;
  spec.optimizer = optimizer;
  spec.mode = Mode::kSync;
  if (kind == TableKind::kSparse) spec.dim = 1;
  return spec;
}

TEST(RefusalTexts, EachRowHasOneKey) {
  const TableSpec spec = RefusingSpec(TableKind::kSparse);
  const std::vector<wire::SlotEntry> entries = {{0, 1, 1}, {1, 1, 1}};
  const std::vector<float> values(2);
  for (const size_t count : {1u, 2u, 3u}) {
    const std::vector<uint64_t> keys(count);
    wire::PushView push;
    push.entries = entries;
    push.keys = keys;
    push.values = std::as_bytes(std::span(values));
    EXPECT_EQ(CheckPushShape(spec, push, "push").ok(), count == 2);
    EXPECT_EQ(CheckPullShape(spec, entries, keys).ok(), count == 2);
  }
}

TEST(RefusalTexts, EverySettingMustBeFinite) {
  const TableSpec spec = RefusingSpec(TableKind::kDense, OptimizerKind::kAdam);
  const std::pair<double Hyper::*, const char*> fields[] = {
      {&Hyper::lr, "lr"},       {&Hyper::weight_decay, "weight_decay"},
      {&Hyper::beta1, "beta1"}, {&Hyper::beta2, "beta2"},
      {&Hyper::eps, "eps"},     {&Hyper::dampening, "dampening"}};
  for (const auto& [field, name] : fields) {
    Hyper hyper;
    hyper.*field = std::numeric_limits<double>::infinity();
    wire::PushParams params;
    params.set_hyper(hyper);
    const Status refused = CheckHyper(spec, params);
    EXPECT_EQ(refused.code(), Code::kNotFinite) << name;
    EXPECT_NE(refused.message().find(std::string(": ") + name + " inf"), std::string::npos)
        << refused.message();
  }
}

TEST(RefusalTexts, WhatFtrlCanNotWorkWithIsRefusedUnlessItsWorkerHasJoined) {
  const TableSpec spec = RefusingSpec(TableKind::kSparse, OptimizerKind::kFtrl);
  for (double Hyper::* field : {&Hyper::beta1, &Hyper::beta2, &Hyper::weight_decay}) {
    Hyper hyper;
    hyper.*field = -0.5;
    wire::PushParams params;
    params.set_hyper(hyper);
    EXPECT_EQ(CheckHyper(spec, params).code(), Code::kInvalidArgument);
    params.flags = wire::kParamJoined;
    EXPECT_TRUE(CheckHyper(spec, params).ok()) << "it agrees to what others say";
  }
}

TEST(RefusalTexts, AnAssignHasNeitherPhase) {
  wire::PushParams params;
  params.op = static_cast<uint8_t>(PushOp::kAssign);
  const TableSpec spec = RefusingSpec(TableKind::kDense);
  EXPECT_TRUE(CheckRoundParams(spec, params, true).ok());
  for (const uint16_t flag : {wire::kParamTwoPhase, wire::kParamDecide}) {
    params.flags = flag;
    EXPECT_NE(CheckRoundParams(spec, params, false).message().find("nothing to decide"), std::string::npos);
  }
}

TEST(RoundTermsTest, SettingsAreCalledAsTorchCallsThem) {
  using enum OptimizerKind;
  const struct {
    OptimizerKind kind;
    double Hyper::* field;
    const char* name;
  } cases[] = {{kSgd, &Hyper::beta1, "momentum"},
               {kRmsprop, &Hyper::beta1, "momentum"},
               {kAdam, &Hyper::beta1, "beta1"},
               {kFtrl, &Hyper::beta1, "l1"},
               {kAdam, &Hyper::beta2, "beta2"},
               {kRmsprop, &Hyper::beta2, "alpha"},
               {kFtrl, &Hyper::beta2, "beta"},
               {kFtrl, &Hyper::weight_decay, "l2"},
               {kAdam, &Hyper::weight_decay, "weight_decay"},
               {kAdam, &Hyper::eps, "eps"},
               {kAdagrad, &Hyper::dampening, "lr_decay"},
               {kSgd, &Hyper::dampening, "dampening"}};
  for (const auto& one : cases) {
    RoundTerms first, second;
    second.hyper.*one.field = 0.25;
    EXPECT_FALSE(first.SameAs(second)) << one.name;
    const Status differs = TermsDiffer(RefusingSpec(TableKind::kDense, one.kind), Round{3},
                                       {{Rank{0}, &first}, {Rank{1}, &second}});
    EXPECT_EQ(differs.code(), Code::kHyperMismatch);
    EXPECT_EQ(differs.message(), "round 3 of table \"w\": rank 0 has " + std::string(one.name) +
                                     " 0, rank 1 has " + one.name + " 0.25: give all workers the same");
  }
}

TEST(RoundTermsTest, OfManyThatDifferAFewAreNamedEachOnce) {
  std::vector<RoundTerms> terms(10);
  std::vector<GivenBy<RoundTerms>> given;
  for (uint32_t rank = 0; rank < terms.size(); ++rank) {
    terms[rank].hyper.lr = rank;
    given.push_back({Rank{rank}, &terms[rank]});
    given.push_back({Rank{rank}, &terms[rank]});  // its mark and its contribution
  }
  EXPECT_EQ(
      TermsDiffer(RefusingSpec(TableKind::kDense), Round{0}, given).message(),
      "round 0 of table \"w\": rank 0 has lr 0, rank 1 has lr 1, rank 2 has lr 2, rank 3 has lr 3, rank 4 "
      "has lr 4: give all workers the same");
}

TEST(RoundTermsTest, ThoseWhoSkipNeedNotScaleAlike) {
  const Decision half{.skip = true, .scale = 0.5, .hyper = {}}, whole{.skip = true, .scale = 1, .hyper = {}};
  EXPECT_TRUE(half.SameAs(whole));
  const Decision applies{.skip = false, .scale = 1, .hyper = {}},
      scales{.skip = false, .scale = 0.5, .hyper = {}};
  EXPECT_FALSE(applies.SameAs(scales));
  EXPECT_FALSE(applies.SameAs(whole));
}

}  // namespace
}  // namespace cairn::server
