// Data frames: round trips, and a refusal for every rule of docs/internals/wire-format.md that a peer could
// break. Decoders are called on tampered bodies directly, so that the checksum does not hide them.
#include "wire/data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "wire/body_layout.h"
#include "wire/wire_samples.h"

namespace cairn::wire {
namespace {

class Data : public ::testing::Test {
 protected:
  InFrame Sample(const std::string& name) {
    for (NamedFrame& sample : SampleData(pool_)) {
      if (sample.name != name) continue;
      Result<InFrame> in = Parse(Flatten(*sample.frame, pool_).bytes(), kMaxBodyBytes, pool_);
      EXPECT_TRUE(in.ok()) << in.status().ToString();
      return std::move(in).value();
    }
    ADD_FAILURE() << name;
    return {};
  }
  template <class T>
  void Write(InFrame& frame, size_t at, T value) {
    ASSERT_LE(at + sizeof(T), frame.storage.size());
    std::memcpy(frame.storage.data() + at, &value, sizeof(T));
  }
  static bool Decodes(const InFrame& in) {
    PushReplyView refusal;
    switch (in.header.type) {
      case FrameType::kPush:
      case FrameType::kContribute:
      case FrameType::kDone: return DecodePush(in.header, in.body()).ok();
      case FrameType::kPull: return DecodePull(in.header, in.body()).ok();
      case FrameType::kPushReply: return DecodePushReply(in.header, in.body()).ok();
      case FrameType::kError: return DecodeError(in.header, in.body()).ok();
      default:
        return DecodeRoundRefusal(in.header, in.body(), &refusal) || DecodeValues(in.header, in.body()).ok();
    }
  }
  // True where the sample is refused after `damage`.
  bool Refused(const std::string& name, const std::function<void(InFrame&)>& damage) {
    InFrame in = Sample(name);
    EXPECT_TRUE(Decodes(in)) << name;
    damage(in);
    return !Decodes(in);
  }
  BufferPool pool_;
};

constexpr size_t kEntriesAt = 128;  // of a push

std::vector<float> Floats(std::span<const std::byte> bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

TEST_F(Data, PushDense) {
  const InFrame in = Sample("push_dense");
  EXPECT_EQ(in.header.request_id, 0x0102030405060708u);
  EXPECT_EQ(in.header.incarnation, 12u);
  EXPECT_EQ(in.header.state_version, 41u);
  EXPECT_EQ(in.header.table, 4u);
  const Result<PushView> view = DecodePush(in.header, in.body());
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  EXPECT_EQ(view->params.weight, 2.5);
  EXPECT_EQ(view->params.hyper(), (Hyper{0.125, 0.0625, 0.9, 0.999, 1e-8, 0.5}));
  ASSERT_EQ(view->entries.size(), 2u);
  EXPECT_EQ(view->entries[1].slot, 4u);
  EXPECT_EQ(view->entries[1].count, 2u);
  EXPECT_EQ(view->entries[1].number, 8u);
  EXPECT_TRUE(view->keys.empty());
  EXPECT_TRUE(view->done_bitmap.empty());
  EXPECT_EQ(Floats(view->values), (std::vector<float>{1, 2, 3, 4, 5}));
}

TEST_F(Data, ContributeWithBitmapAndKeys) {
  const InFrame in = Sample("contribute");
  EXPECT_EQ(in.header.round, 91u);
  const Result<PushView> view = DecodePush(in.header, in.body());
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  ASSERT_EQ(view->done_bitmap.size(), 3u);
  EXPECT_EQ(view->done_bitmap[2], std::byte{0x80});
  ASSERT_EQ(view->keys.size(), 3u);
  EXPECT_EQ(view->keys[1], 0xFFFFFFFFFFFFFFFFu);
  EXPECT_EQ(Floats(view->values), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view->keys.data()) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view->values.data()) % 64, 0u);
}

TEST_F(Data, StepsAndTheMarkOfARoundTripComeThrough) {
  const InFrame in = Sample("push_rows");
  EXPECT_EQ(in.header.flags, kFlagTrip);
  const Result<PushView> view = DecodePush(in.header, in.body());
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  EXPECT_EQ(view->params.step, 0x7766554433221100u);
  EXPECT_EQ(view->params.hyper(), (Hyper{0.125, 0.0625, 0.9, 0.999, 1e-8, 0.5, 0x7766554433221100}));
  PushParams again;
  again.set_hyper(view->params.hyper());
  EXPECT_EQ(again.step, view->params.step);
  EXPECT_EQ(offsetof(PushParams, step), 88u);
}

TEST_F(Data, APullOfKeysNamesSlotsAlone) {
  const InFrame in = Sample("pull_keys");
  const Result<PullView> view = DecodePull(in.header, in.body());
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  ASSERT_EQ(view->entries.size(), 2u);
  EXPECT_EQ(view->entries[1].number, kKeyColumn);
  EXPECT_TRUE(view->keys.empty());
}

TEST_F(Data, MaskLiesBetweenBitmapAndKeys) {
  const InFrame in = Sample("contribute_first_phase");
  const Result<PushView> view = DecodePush(in.header, in.body());
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  EXPECT_EQ(view->params.value_scale, 0x1p-16);
  EXPECT_TRUE(view->params.has(kParamTwoPhase));
  ASSERT_EQ(view->mask.size(), 2u);
  EXPECT_EQ(view->mask[0], std::byte{0xFD});
  ASSERT_EQ(view->done_bitmap.size(), 3u);
  EXPECT_EQ(Floats(view->values), (std::vector<float>{1, 2, 3, 4, 5}));
}

TEST_F(Data, DonePullAndReplies) {
  const InFrame done = Sample("done");
  EXPECT_EQ(DecodePush(done.header, done.body())->done_bitmap.size(), 3u);
  const InFrame pull = Sample("pull");
  EXPECT_EQ(pull.header.flags, kFlagSyncPull);
  EXPECT_EQ(DecodePull(pull.header, pull.body())->keys[2], 13u);
  for (const char* name : {"pull_reply", "round_reply"}) {
    const InFrame reply = Sample(name);
    const Result<ValuesView> view = DecodeValues(reply.header, reply.body());
    ASSERT_TRUE(view.ok());
    EXPECT_EQ(Position{view->entries[1].number}, Position::Of(2, 1));
    EXPECT_EQ(Floats(view->values).size(), 6u);
    PushReplyView refusal;
    EXPECT_FALSE(DecodeRoundRefusal(reply.header, reply.body(), &refusal));
  }
}

TEST_F(Data, PushReplies) {
  InFrame in = Sample("push_reply_ok");
  EXPECT_TRUE(in.body().empty());
  EXPECT_TRUE(DecodePushReply(in.header, in.body())->entries.empty());
  in = Sample("push_reply_problems");
  EXPECT_EQ(in.header.request_id, 0x0102030405060708u);
  const Result<PushReplyView> view = DecodePushReply(in.header, in.body());
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->entries[0].count, static_cast<uint32_t>(Code::kUnavailable));
  EXPECT_EQ(view->entries[0].number, 6u);
  EXPECT_EQ(view->text, "slot 4: NaN in row 2");
}

TEST_F(Data, RoundRefusalIsNotTakenForValues) {
  const InFrame in = Sample("round_refusal");
  EXPECT_EQ(in.header.round, 91u);
  PushReplyView view;
  ASSERT_TRUE(DecodeRoundRefusal(in.header, in.body(), &view));
  EXPECT_EQ(view.entries[1].count, static_cast<uint32_t>(Code::kNotFinite));
  EXPECT_EQ(view.text, "ranks 0 and 2: lr differs");
  EXPECT_FALSE(DecodeValues(in.header, in.body()).ok());
}

TEST_F(Data, ErrorsAndLongTexts) {
  InFrame in = Sample("error");
  EXPECT_EQ(DecodeError(in.header, in.body())->code, Code::kRetired);
  EXPECT_EQ(DecodeError(in.header, in.body())->text, "incarnation 12 was declared dead");
  // Cut before a character, not in it: 4095 letters, then one of two bytes.
  const std::string text = std::string(4095, 'x') + "é and more";
  const FramePtr frame = EncodeError(FrameHeader(), {Code::kIo, text}, pool_);
  Result<InFrame> parsed = Parse(Flatten(*frame, pool_).bytes(), kMaxBodyBytes, pool_);
  EXPECT_EQ(DecodeError(parsed->header, parsed->body())->text, std::string(4095, 'x'));
}

TEST_F(Data, EncoderRefersToValuesAndCopiesTheRest) {
  const PushParams params;
  SlotEntry entries[] = {{3, 2, 1}};
  const Buffer values = SampleFloats(2, pool_);
  DataParts parts = SampleParts(FrameType::kContribute);
  parts.params = &params;
  parts.entries = entries;
  parts.values = {values.bytes().first(4), values.bytes().subspan(4)};
  const FramePtr frame = EncodeData(std::move(parts), pool_);
  entries[0].slot = 99;
  ASSERT_EQ(frame->values.size(), 2u);
  EXPECT_EQ(frame->values[0].data(), values.data());
  EXPECT_EQ(MutableEntries(*frame)[0].slot, 3u);
  EXPECT_TRUE(frame->owned.empty());
}

TEST_F(Data, EncodingDoesNotDependOnWhatThePoolMemoryHeld) {
  BufferPool dirty;
  for (size_t size = 512; size <= 4096; size *= 2) {
    std::vector<Buffer> taken;
    for (int i = 0; i < 8; ++i) taken.push_back(dirty.Get(size));
    for (Buffer& buffer : taken) std::memset(buffer.data(), 0xEE, buffer.size());
  }
  const auto clean = SampleData(pool_), used = SampleData(dirty);
  for (size_t i = 0; i < clean.size(); ++i) {
    const Buffer a = Flatten(*clean[i].frame, pool_), b = Flatten(*used[i].frame, pool_);
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size()), 0) << clean[i].name;
  }
}

TEST_F(Data, BodyOfAnotherLengthIsRefused) {
  for (const NamedFrame& sample : SampleData(pool_)) {
    InFrame in = Sample(sample.name);
    if (in.header.type == FrameType::kPushReply && in.body().empty()) continue;
    const size_t full = in.storage.size();
    const size_t least = HasSections(in.header.type, in.header.flags)
                             ? LayoutOf(in.header, in.body())->values
                             : in.header.entry_count * sizeof(SlotEntry);
    for (size_t n = 0; n < full; ++n) {
      in.storage.Resize(n);
      EXPECT_FALSE(Decodes(in)) << sample.name << " cut to " << n;  // the header says more
      in.header.body_bytes = static_cast<uint32_t>(n);
      if (n < least) {
        EXPECT_FALSE(Decodes(in)) << sample.name << " cut to " << n;
      } else {
        (void)Decodes(in);  // a shorter text or fewer values may be right; it must not read beyond
      }
      in.header.body_bytes = static_cast<uint32_t>(full);
    }
  }
}

TEST_F(Data, SlotsMustAscendAndBeBounded) {
  for (const char* name : {"push_dense", "push_sparse", "contribute"}) {
    EXPECT_TRUE(Refused(name, [&](InFrame& in) { Write(in, kEntriesAt + 16, uint32_t{0}); })) << name;
    EXPECT_TRUE(Refused(name, [&](InFrame& in) { Write(in, kEntriesAt, uint32_t{65536}); })) << name;
  }
  EXPECT_TRUE(Refused("push_dense", [&](InFrame& in) { Write(in, kEntriesAt + 16, uint32_t{1}); }));  // twice
  for (const char* name : {"pull", "pull_reply", "round_reply", "push_reply_problems", "round_refusal"}) {
    EXPECT_TRUE(Refused(name, [&](InFrame& in) { Write(in, 16, uint32_t{0}); })) << name;
    EXPECT_TRUE(Refused(name, [&](InFrame& in) { Write(in, 16, uint32_t{70000}); })) << name;
  }
}

TEST_F(Data, CountsMustAddUpToTheKeys) {
  for (const char* name : {"push_sparse", "contribute"}) {
    EXPECT_TRUE(Refused(name, [&](InFrame& in) { Write(in, kEntriesAt + 4, uint32_t{1}); })) << name;
    EXPECT_TRUE(Refused(name, [&](InFrame& in) { Write(in, kEntriesAt + 4, uint32_t{0xFFFFFFFF}); })) << name;
  }
  EXPECT_TRUE(Refused("pull", [&](InFrame& in) { Write(in, 4, uint32_t{3}); }));
  // 2^32 + 3 is not 3.
  EXPECT_TRUE(Refused("push_sparse", [&](InFrame& in) {
    Write(in, kEntriesAt + 4, uint32_t{0x80000002});
    Write(in, kEntriesAt + 20, uint32_t{0x80000000});
  }));
}

TEST_F(Data, ValuesMustBeWholeRows) {
  for (const char* name : {"push_dense", "push_sparse", "contribute", "pull_reply", "round_reply"}) {
    for (uint32_t less : {1u, 2u, 4u, 8u}) {
      EXPECT_TRUE(Refused(name,
                          [&](InFrame& in) {
                            in.header.body_bytes -= less;
                            in.storage.Resize(in.header.body_bytes);
                          }))
          << name << " " << less;
    }
  }
}

TEST_F(Data, NoValuesWhereNoneBelong) {
  for (const char* name : {"done", "pull"}) {
    EXPECT_TRUE(Refused(name, [&](InFrame& in) {
      in.header.body_bytes += 4;
      in.storage.Resize(in.header.body_bytes);
    })) << name;
  }
  // One column, the same in every entry.
  EXPECT_TRUE(Refused("pull", [&](InFrame& in) { Write(in, 8, uint64_t{1}); }));
  EXPECT_TRUE(Refused("pull", [&](InFrame& in) {
    Write(in, 8, uint64_t{16});
    Write(in, 24, uint64_t{16});
  }));
  EXPECT_FALSE(Refused("pull", [&](InFrame& in) {
    Write(in, 8, uint64_t{kStepColumn});
    Write(in, 24, uint64_t{kStepColumn});
  }));
}

TEST_F(Data, ParamsAreChecked) {
  const double inf = std::numeric_limits<double>::infinity();
  for (double weight : {-1.0, -0x1p-1074, inf, -inf, std::nan("")}) {
    EXPECT_TRUE(Refused("contribute", [&](InFrame& in) { Write(in, 0, weight); })) << weight;
  }
  EXPECT_FALSE(Refused("contribute", [&](InFrame& in) { Write(in, 0, 0.0); }));
  for (size_t at = offsetof(PushParams, reserved0); at < sizeof(PushParams); at += 4) {
    if (at == offsetof(PushParams, step) || at == offsetof(PushParams, step) + 4) continue;
    EXPECT_TRUE(Refused("push_dense", [&](InFrame& in) { Write(in, at, uint32_t{1}); })) << at;
  }
  EXPECT_TRUE(Refused("push_dense", [](InFrame& in) { in.header.round = 1; }));
  for (double scale : {0.0, inf, std::nan("")}) {
    EXPECT_TRUE(Refused("contribute", [&](InFrame& in) {
      Write(in, offsetof(PushParams, value_scale), scale);
    })) << scale;
  }
  EXPECT_TRUE(Refused("decide", [&](InFrame& in) { Write(in, offsetof(PushParams, scale), inf); }));
}

TEST_F(Data, FlagsOperationsAndColumnsAreChecked) {
  const auto flags = [&](const char* name, uint16_t value) {
    return Refused(name, [&](InFrame& in) { Write(in, offsetof(PushParams, flags), value); });
  };
  EXPECT_TRUE(flags("push_dense", kParamJoined));
  EXPECT_TRUE(flags("contribute", kParamDecide));
  EXPECT_TRUE(flags("contribute", kParamNotFinite));
  EXPECT_TRUE(flags("contribute", kParamSkip));
  EXPECT_TRUE(flags("contribute", 64));
  EXPECT_FALSE(flags("contribute", kParamWeighted));
  EXPECT_FALSE(flags("done", kParamWeighted));
  EXPECT_TRUE(flags("done", kParamWeighted | kParamDecide));
  EXPECT_TRUE(flags("push_dense", kParamWeighted));
  EXPECT_TRUE(flags("done", kParamDecide | kParamTwoPhase));
  EXPECT_FALSE(flags("done", kParamDecide | kParamSkip));
  EXPECT_FALSE(flags("done", kParamTwoPhase | kParamNotFinite));
  EXPECT_FALSE(flags("done", kParamJoined));
  EXPECT_TRUE(Refused("assign", [&](InFrame& in) { Write(in, offsetof(PushParams, op), uint8_t{3}); }));
  EXPECT_TRUE(Refused("assign", [&](InFrame& in) { Write(in, offsetof(PushParams, op), uint8_t{0}); }));
  EXPECT_TRUE(Refused("assign", [&](InFrame& in) { Write(in, offsetof(PushParams, column), uint8_t{16}); }));
}

TEST_F(Data, MaskIsBoundedAndInItsPlace) {
  const size_t at = offsetof(PushParams, mask_bytes);
  for (uint32_t bytes : {kMaxMaskBytes + 1, 0x7FFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFC0u}) {
    EXPECT_TRUE(Refused("contribute", [&](InFrame& in) { Write(in, at, bytes); })) << bytes;
    EXPECT_TRUE(Refused("assign", [&](InFrame& in) { Write(in, at, bytes); })) << bytes;
  }
  EXPECT_TRUE(Refused("done", [&](InFrame& in) { Write(in, at, uint32_t{1}); }));
}

TEST_F(Data, BitmapIsBoundedAndInItsPlace) {
  const size_t at = offsetof(PushParams, bitmap_bytes);
  for (uint32_t bytes : {kMaxBitmapBytes + 1, 0x7FFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFC0u}) {
    EXPECT_TRUE(Refused("contribute", [&](InFrame& in) { Write(in, at, bytes); })) << bytes;
    EXPECT_TRUE(Refused("done", [&](InFrame& in) { Write(in, at, bytes); })) << bytes;
  }
  EXPECT_TRUE(Refused("contribute", [](InFrame& in) { in.header.flags &= ~kFlagDone; }));
  EXPECT_TRUE(Refused("push_dense", [&](InFrame& in) { Write(in, at, uint32_t{1}); }));
}

TEST_F(Data, CountsThatDoNotFitAreRefused) {
  for (const char* name : {"push_sparse", "contribute", "pull"}) {
    for (uint32_t count : {64u, 0x10000000u, 0x20000000u, 0xFFFFFFFFu}) {
      EXPECT_TRUE(Refused(name, [&](InFrame& in) { in.header.key_count = count; })) << name << count;
      EXPECT_TRUE(Refused(name, [&](InFrame& in) { in.header.entry_count = count; })) << name << count;
    }
  }
  for (const char* name : {"pull_reply", "round_reply", "push_reply_problems", "round_refusal"}) {
    EXPECT_TRUE(Refused(name, [&](InFrame& in) { in.header.key_count = 1; })) << name;
    EXPECT_TRUE(Refused(name, [&](InFrame& in) { in.header.entry_count = 0x10000000; })) << name;
  }
}

TEST_F(Data, PaddingMustBeZero) {
  EXPECT_TRUE(Refused("push_dense", [&](InFrame& in) { Write(in, kEntriesAt + 32, uint8_t{1}); }));
  EXPECT_TRUE(Refused("contribute", [&](InFrame& in) { Write(in, 192 + 3, uint8_t{1}); }));   // bitmap
  EXPECT_TRUE(Refused("contribute", [&](InFrame& in) { Write(in, 256 + 63, uint8_t{1}); }));  // keys
}

TEST_F(Data, CodesAndTextsOfAnswers) {
  for (const char* name : {"push_reply_problems", "round_refusal"}) {
    EXPECT_TRUE(Refused(name, [&](InFrame& in) { Write(in, 4, uint32_t{0}); })) << name;
    EXPECT_TRUE(Refused(name, [&](InFrame& in) { Write(in, 4, uint32_t{16}); })) << name;
  }
  EXPECT_TRUE(Refused("error", [&](InFrame& in) { Write(in, 0, uint32_t{0}); }));
  EXPECT_TRUE(Refused("error", [&](InFrame& in) { Write(in, 0, uint32_t{16}); }));
  EXPECT_TRUE(Refused("error", [&](InFrame& in) { Write(in, 4, uint32_t{31}); }));
  EXPECT_TRUE(Refused("push_reply_problems", [](InFrame& in) { in.header.entry_count = 0; }));  // text alone
  EXPECT_TRUE(Refused("round_refusal", [](InFrame& in) {
    in.header.entry_count = in.header.body_bytes = 0;
    in.storage.Resize(0);
  }));
}

TEST_F(Data, DecodersRefuseOtherTypes) {
  for (const NamedFrame& sample : SampleData(pool_)) {
    InFrame in = Sample(sample.name);
    const FrameType type = in.header.type;
    const bool push = HasParams(type);
    EXPECT_EQ(DecodePush(in.header, in.body()).ok(), push) << sample.name;
    EXPECT_EQ(DecodePull(in.header, in.body()).ok(), type == FrameType::kPull) << sample.name;
    EXPECT_EQ(DecodePushReply(in.header, in.body()).ok(), type == FrameType::kPushReply) << sample.name;
    EXPECT_EQ(DecodeError(in.header, in.body()).ok(), type == FrameType::kError) << sample.name;
    EXPECT_FALSE(DecodeControl(in.header, in.body()).ok()) << sample.name;
  }
}

}  // namespace
}  // namespace cairn::wire
