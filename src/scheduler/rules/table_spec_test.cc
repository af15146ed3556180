// Which tables there are: every combination of optimizer, element, kind, mode and flag is either
// let through or refused with what to do.
#include <gtest/gtest.h>

#include <limits>

#include "scheduler/rules/table_spec.h"
#include "wire/cluster_state.h"
#include "wire/frame.h"

namespace cairn::scheduler {
namespace {

using enum OptimizerKind;

TableSpec Dense(OptimizerKind optimizer, uint32_t flags = 0, Mode mode = Mode::kAsync) {
  return {.name = "w", .mode = mode, .optimizer = optimizer, .size = 10, .optimizer_flags = flags};
}
TableSpec Sparse(OptimizerKind optimizer, uint32_t flags = 0, Mode mode = Mode::kAsync) {
  TableSpec spec = Dense(optimizer, flags, mode);
  spec.kind = TableKind::kSparse;
  spec.size = 0;
  spec.dim = 4;
  return spec;
}
TableSpec Integers(TableSpec spec) {
  spec.element = ElementType::kInt64;
  return spec;
}
void Good(const TableSpec& spec) {
  const Status status = CheckSpec(spec, 4);
  EXPECT_TRUE(status.ok()) << status.message();
}
void Refused(const TableSpec& spec, const char* part) {
  const Status status = CheckSpec(spec, 4);
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << "expected: " << part;
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

constexpr OptimizerKind kAll[] = {kSum,  kSgd,   kAdagrad,    kAdam,           kAdamW, kRmsprop,
                                  kMean, kFirst, kSparseAdam, kRowwiseAdagrad, kFtrl};

TEST(TableSpecs, NarrowStorageIsForSparseTablesOfFloat32) {
  for (OptimizerKind kind : {kSum, kSgd, kAdagrad, kSparseAdam, kRowwiseAdagrad, kFtrl}) {
    for (Storage storage : {Storage::kBfloat16, Storage::kFloat16}) {
      TableSpec spec = Sparse(kind);
      spec.storage = storage;
      Good(spec);
    }
  }
  TableSpec dense = Dense(kSgd), integers = Integers(Sparse(kSum)), unknown = Sparse(kSgd), large = unknown;
  dense.storage = integers.storage = Storage::kBfloat16;
  Refused(dense, "storage bfloat16 is for sparse tables: a dense one keeps float32, leave it out");
  Refused(integers, "is for tables of float32");
  unknown.storage = static_cast<Storage>(3);
  Refused(unknown, "does not know");
  large.storage = Storage::kFloat16;
  large.init = Init::Constant(1e5f);
  Refused(large, "beyond float16's largest number");
  TableSpec full = large;
  full.storage = Storage::kFull;
  EXPECT_EQ(DescribeDifference(full, large), "storage (full there, float16 asked for)");
  EXPECT_EQ(Describe(large), "sparse async sgd, rows of 4 float32 stored as float16");
}

TEST(TableSpecs, OptimizersByKindElementAndMode) {
  for (OptimizerKind kind : kAll) {
    for (Mode mode : {Mode::kAsync, Mode::kSync}) {
      SCOPED_TRACE(testing::Message() << OptimizerText(kind) << ", mode " << static_cast<int>(mode));
      const bool sync = mode == Mode::kSync;
      const auto check = [](const TableSpec& spec, bool good) {
        EXPECT_EQ(CheckSpec(spec, 4).ok(), good) << CheckSpec(spec, 4).message();
      };
      const bool by_rows = kind == kSparseAdam || kind == kRowwiseAdagrad;
      check(Dense(kind, 0, mode), kind != kFirst && !by_rows && (kind != kMean || sync));
      check(Sparse(kind, 0, mode),
            kind == kSum || kind == kSgd || kind == kAdagrad || kind == kFtrl || by_rows);
      const bool whole = kind == kSum || (kind == kFirst && !sync);
      check(Integers(Dense(kind, 0, mode)), whole);
      check(Integers(Sparse(kind, 0, mode)), whole);
    }
  }
  Refused(Sparse(kAdam), "use sparse_adam");
  Refused(Dense(kSparseAdam), "use a sparse table, or adam");
  Refused(Integers(Dense(kSgd)), "tables of int64 can only sum");
  Refused(Integers(Dense(kFirst, 0, Mode::kSync)), "async tables of int64");
  Refused(Dense(kFirst), "async tables of int64");
  Refused(Dense(kMean), "dense sync tables");
  Refused(Dense(static_cast<OptimizerKind>(11)), "does not know");
}

// Each flag with each optimizer, in dense and sparse, async and sync tables.
TEST(TableSpecs, FlagsOnlyWhereTheyMeanSomething) {
  for (OptimizerKind kind : kAll) {
    for (bool dense : {true, false}) {
      for (Mode mode : {Mode::kAsync, Mode::kSync}) {
        const auto make = [&](uint32_t flags) {
          TableSpec spec = dense ? Dense(kind, flags, mode) : Sparse(kind, flags, mode);
          return kind == kFirst ? Integers(spec) : spec;
        };
        if (!CheckSpec(make(0), 4).ok()) continue;
        SCOPED_TRACE(Describe(make(0)));
        const auto check = [&](uint32_t flags, bool good) {
          const Status status = CheckSpec(make(flags), 4);
          EXPECT_EQ(status.ok(), good) << flags << ": " << status.message();
        };
        const bool follows = kind != kSum && kind != kMean && kind != kFirst;
        check(kWithMomentum, dense && (kind == kSgd || kind == kRmsprop));
        check(kNesterov, false);
        check(kNesterov | kWithMomentum, dense && kind == kSgd);
        check(kAmsgrad, kind == kAdam || kind == kAdamW);
        check(kCentered, kind == kRmsprop);
        check(kMaximize, follows);
        check(kReduceSum, mode == Mode::kSync && kind != kSum);
        check(64, false);
        check(uint32_t{1} << 31, false);
      }
    }
  }
  Refused(Dense(kSgd, kNesterov), "nesterov is for sgd with the flag momentum: leave it out");
  Refused(Dense(kAdam, kReduceSum), "reduce_sum is for sync tables");
  Refused(Sparse(kSgd, kWithMomentum), "momentum is for dense tables");
}

TEST(TableSpecs, InitialStateIsForAccumulators) {
  TableSpec spec = Dense(kAdagrad);
  spec.initial_state = 0.1f;
  Good(spec);
  for (float bad : {-0.1f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    spec.initial_state = bad;
    Refused(spec, "finite number and not negative");
  }
  spec = Dense(kAdam);
  spec.initial_state = 0.1f;
  Refused(spec, "initial_state is for adagrad, rowwise_adagrad and ftrl");
  for (const TableSpec& other : {Sparse(kAdagrad), Sparse(kRowwiseAdagrad), Sparse(kFtrl), Dense(kFtrl)}) {
    spec = other;
    spec.initial_state = 0.1f;
    Good(spec);
  }
  spec = Sparse(kSparseAdam);
  spec.initial_state = 0.1f;
  Refused(spec, "leave it at 0");
}

TEST(TableSpecs, SegmentsAscendToTheSize) {
  TableSpec spec = Dense(kAdam);
  for (const auto& good : {std::vector<uint64_t>{10}, {1, 10}, {3, 4, 10}}) {
    spec.segments = good;
    Good(spec);
  }
  spec.segments = {3, 9};
  Refused(spec, "last segment ends at 9, but the table has 10 elements");
  spec.segments = {3, 11};
  Refused(spec, "last segment ends at 11");
  spec.segments = {0, 10};
  Refused(spec, "must ascend, and segment 0 ends at 0");
  spec.segments = {4, 4, 10};
  Refused(spec, "must ascend, and segment 1 ends at 4");
  spec.segments.clear();
  spec.size = wire::kMaxSegments + 1;
  for (uint64_t end = 1; end <= spec.size; ++end) spec.segments.push_back(end);
  Refused(spec, "at most 65536 segments");
  spec.size = wire::kMaxSegments;
  spec.segments.pop_back();
  Good(spec);
  TableSpec sparse = Sparse(kSgd);
  sparse.segments = {4};
  Refused(sparse, "segments are for dense tables");
}

TEST(TableSpecs, WireFormatsWhereTheyMeanSomething) {
  TableSpec dense{.name = "w", .size = 10};
  TableSpec rows{.name = "e", .kind = TableKind::kSparse, .dim = 4};
  for (WireFormat format : {WireFormat::kFloat16, WireFormat::kBfloat16, WireFormat::kLz4}) {
    dense.wire = rows.wire = format;
    EXPECT_TRUE(CheckSpec(dense, 16).ok());
    EXPECT_TRUE(CheckSpec(rows, 16).ok());
    TableSpec integers{.name = "n", .element = ElementType::kInt64, .size = 10};
    integers.wire = format;
    EXPECT_EQ(CheckSpec(integers, 16).ok(), format == WireFormat::kLz4);
    dense.wire_topk = 0.5f;
    EXPECT_FALSE(CheckSpec(dense, 16).ok());  // only top-k has a part
    dense.wire_topk = 0;
  }
  dense.wire = rows.wire = WireFormat::kTopK;
  for (float part : {0.0f, -0.1f, 1.01f, std::numeric_limits<float>::quiet_NaN()}) {
    dense.wire_topk = part;
    EXPECT_NE(CheckSpec(dense, 16).message().find("wire_topk"), std::string::npos) << part;
  }
  dense.wire_topk = rows.wire_topk = 0.01f;
  EXPECT_TRUE(CheckSpec(dense, 16).ok());
  EXPECT_NE(CheckSpec(rows, 16).message().find("dense tables"), std::string::npos);
  dense.wire = static_cast<WireFormat>(5);
  EXPECT_FALSE(CheckSpec(dense, 16).ok());

  TableSpec there{.name = "w", .size = 10}, asked = there;
  asked.wire = WireFormat::kBfloat16;
  EXPECT_EQ(DescribeDifference(there, asked), "wire (plain there, bf16 asked for)");
}

TEST(TableSpecs, ADifferenceNamesTheNewFields) {
  TableSpec there = Dense(kSgd, kWithMomentum), asked = Dense(kRmsprop, kWithMomentum | kCentered);
  EXPECT_EQ(DescribeDifference(there, there), "");
  EXPECT_EQ(DescribeDifference(there, asked),
            "optimizer (sgd there, rmsprop asked for), "
            "optimizer flags (momentum there, momentum+centered asked for)");
  asked = there;
  asked.segments = {3, 10};
  EXPECT_EQ(DescribeDifference(there, asked), "segments (a model with other tensors)");
  asked = there;
  asked.optimizer_flags = 0;
  EXPECT_EQ(DescribeDifference(there, asked), "optimizer flags (momentum there, none asked for)");
  there = asked = Dense(kAdagrad);
  asked.initial_state = 0.5f;
  EXPECT_EQ(DescribeDifference(there, asked), "initial_state (0.000000 there, 0.500000 asked for)");
}

TEST(TableSpecs, LimitsOfNamesRowsAndSizes) {
  TableSpec spec = Dense(kSgd);
  spec.name = std::string(255, 'a');
  Good(spec);
  spec.name += 'a';
  Refused(spec, "a name has at most 255 bytes");
  spec = Sparse(kSgd);
  spec.dim = 1u << 20;
  Good(spec);
  ++spec.dim;
  Refused(spec, "has 1 to 2^20 elements, not 1048577");
  spec.dim = 0;
  Refused(spec, "has 1 to 2^20 elements, not 0");
  const uint64_t most = wire::kMaxBodyBytes / 2 / 4 * 4;  // four slots
  spec = Dense(kSgd);
  spec.size = most;
  Good(spec);
  ++spec.size;
  Refused(spec, "a dense table has 1 to ");
  spec = Integers(Dense(kSum));
  spec.size = most / 2;
  Good(spec);
  ++spec.size;
  Refused(spec, "a dense table has 1 to ");
}

TEST(TableSpecs, InitialValues) {
  const auto with = [](TableSpec spec, InitKind kind, float a, float b) {
    spec.init.kind = kind;
    spec.init.a = a;
    spec.init.b = b;
    return spec;
  };
  Good(with(Dense(kSgd), InitKind::kUniform, -1, 1));
  Refused(with(Dense(kSgd), InitKind::kUniform, 1, -1), "need the low end first");
  Good(with(Dense(kSgd), InitKind::kNormal, 1, 0));
  Refused(with(Dense(kSgd), InitKind::kNormal, 1, -0.5f), "the standard deviation is negative");
  Good(with(Integers(Dense(kSum)), InitKind::kConstant, 3, 0));
  Refused(with(Integers(Dense(kSum)), InitKind::kUniform, 0, 1), "begin with zeros or a constant");
  Refused(with(Dense(kSgd), InitKind::kConstant, std::numeric_limits<float>::infinity(), 0), "not finite");
  Refused(with(Dense(kSgd), InitKind::kUniform, 0, std::numeric_limits<float>::quiet_NaN()), "not finite");
}

TEST(TableSpecs, ADifferenceNamesEveryField) {
  const TableSpec there = Dense(kSgd);
  const auto difference = [&](auto change) {
    TableSpec asked = there;
    change(asked);
    return DescribeDifference(there, asked);
  };
  EXPECT_EQ(difference([](auto& s) { s.kind = TableKind::kSparse; }), "kind (dense there, sparse asked for)");
  EXPECT_EQ(difference([](auto& s) { s.element = ElementType::kInt64; }),
            "element (float32 there, int64 asked for)");
  EXPECT_EQ(difference([](auto& s) { s.mode = Mode::kSync; }), "mode (async there, sync asked for)");
  EXPECT_EQ(difference([](auto& s) { s.size = 11; }), "size (10 there, 11 asked for)");
  EXPECT_NE(difference([](auto& s) { s.dim = 9; }).find("dim ("), std::string::npos);
  EXPECT_NE(
      difference([](auto& s) { s.deterministic = true; }).find("deterministic (no there, yes asked for)"),
      std::string::npos);
  EXPECT_NE(difference([](auto& s) {
              s.non_finite = s.non_finite == NonFinitePolicy::kReject ? NonFinitePolicy::kAllow
                                                                      : NonFinitePolicy::kReject;
            }).find("non_finite ("),
            std::string::npos);
  EXPECT_EQ(difference([](auto& s) { s.init = Init::Constant(2); }).find("init (zeros there, constant(2.0"),
            0u);
  EXPECT_EQ(difference([](auto& s) {
              s.init.stream = 1;
              s.init.kind = InitKind::kNormal;
            }).find("init ("),
            0u);
  EXPECT_NE(difference([](auto& s) { s.wire_topk = 0.5f; }).find("wire_topk ("), std::string::npos);
}

}  // namespace
}  // namespace cairn::scheduler
