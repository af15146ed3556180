// What is sent of a push: what its caller gave, in as many bits as the table's wire format has, and with
// top-k the largest of what was given and not sent yet, so that nothing is lost.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkers.h"
#include "naive_half.h"
#include "wire/data.h"

namespace cairn::sim {

namespace {

using Bytes = std::vector<std::byte>;

template <class T>
T At(const Bytes& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void Store(Bytes& bytes, size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

size_t WidthOf(const TableSpec& spec) { return spec.element == ElementType::kInt64 ? 8 : 4; }

// In one piece; pieces without memory are zeros.
Bytes Whole(const client::PieceList<const std::byte>& pieces) {
  Bytes whole;
  pieces.ForEach(0, pieces.bytes(), [&](std::span<const std::byte> piece) {
    if (piece.data() == nullptr) {
      whole.resize(whole.size() + piece.size());
    } else {
      whole.insert(whole.end(), piece.begin(), piece.end());
    }
  });
  return whole;
}

struct Segment {
  uint64_t begin = 0, end = 0;
};

// Those that are in the push.
std::vector<Segment> SegmentsOf(const client::PartitionInput& given) {
  std::vector<uint64_t> ends = given.table->spec.segments;
  if (ends.empty()) ends.push_back(given.table->spec.size);
  std::vector<Segment> segments;
  uint64_t begin = 0;
  for (size_t s = 0; s < ends.size(); begin = ends[s++]) {
    const bool named = given.mask.empty() || (static_cast<unsigned>(given.mask[s / 8]) >> (s % 8) & 1) != 0;
    if (named) segments.push_back({begin, ends[s]});
  }
  return segments;
}

class Gradients final : public Checker {
 public:
  explicit Gradients(Context& context) : Checker("gradients", context) {}

  void OnPrepared(const PreparedEvent& e) override {
    const bool bare = e.given.joined || e.given.not_finite || e.given.values.empty();
    if (bare) return;
    if (e.frames == nullptr) return context_.deeds.Add(Deed::kChoiceDropped);
    e.given.table->spec.kind == TableKind::kDense ? CheckDense(e) : CheckRows(e);
  }

 private:
  // What has been given and sent so far, of each element, as it is without value_scale. The values are
  // such that no sum is rounded.
  struct Totals {
    std::vector<double> given, sent;
  };

  static std::string Words(const PreparedEvent& e, const std::string& what) {
    return "worker " + std::to_string(e.worker) + " (incarnation " + std::to_string(e.incarnation.value) +
           ") makes a push to table \"" + e.given.table->spec.name + "\" " + what;
  }

  template <class Each>
  void ForEachSent(const PreparedEvent& e, Each each) {
    for (const auto& [header, body] : *e.frames) {
      if (header.type != wire::FrameType::kPush && header.type != wire::FrameType::kContribute) continue;
      const auto push = wire::DecodePush(header, body);
      if (!push.ok()) return Violation(Words(e, "that can't be read: " + push.status().ToString()));
      ForEachPart(push->entries, push->keys, push->values, each);
    }
  }

  void CheckDense(const PreparedEvent& e) {
    const wire::TableInfo& table = *e.given.table;
    const size_t width = WidthOf(table.spec);
    const auto slots = static_cast<uint32_t>(e.given.state->slots.size());
    const auto runs = RunsBySlot(wire::DenseLayout::Of(table.id, table.spec.size, slots));
    Bytes sent(table.spec.size * width);
    uint64_t elements = 0;
    ForEachSent(e, [&](const wire::SlotEntry& entry, auto, std::span<const std::byte> values) {
      for (const wire::DenseRun& run : runs[entry.slot]) {
        const size_t bytes = std::min(run.count * width, values.size());
        std::memcpy(sent.data() + run.begin * width, values.data(), bytes);
        values = values.subspan(bytes);
        elements += bytes / width;
      }
    });
    if (elements != table.spec.size)
      return Violation(Words(e, "with " + std::to_string(elements) + " elements"));
    const std::vector<Segment> segments = SegmentsOf(e.given);
    const bool update = e.given.op == PushOp::kUpdate;
    const bool chosen = update && table.spec.wire == WireFormat::kTopK && e.given.weight != 0;
    Bytes expected = Whole(e.given.values);
    if (chosen) expected = Largest(e, segments, expected);
    if (update) RoundAll(table.spec, expected);
    for (const Segment& segment : segments) Compare(e, segment, expected, sent);
    if (chosen) NoteSent(e, segments, sent);
  }

  void Compare(const PreparedEvent& e, const Segment& segment, const Bytes& expected, const Bytes& sent) {
    const TableSpec& spec = e.given.table->spec;
    const size_t width = WidthOf(spec);
    for (uint64_t i = segment.begin; i < segment.end; ++i) {
      if (std::memcmp(expected.data() + i * width, sent.data() + i * width, width) == 0) continue;
      const bool floats = spec.element == ElementType::kFloat32;
      if (floats && At<float>(expected, i) == At<float>(sent, i)) continue;  // zeros
      const auto word = [&](const Bytes& of) {
        return floats ? std::to_string(At<float>(of, i)) : std::to_string(At<uint64_t>(of, i));
      };
      const std::string found = "in which element " + std::to_string(i) + " is " + word(sent);
      return Violation(Words(e, found + " and should be " + word(expected)));
    }
  }

  // Of each segment the largest, of equal ones the first, of what was given and not sent.
  Bytes Largest(const PreparedEvent& e, const std::vector<Segment>& segments, const Bytes& given) {
    const TableSpec& spec = e.given.table->spec;
    Totals& totals = totals_[{e.incarnation.value, e.given.table->id.value}];
    totals.given.resize(spec.size);
    totals.sent.resize(spec.size);
    Bytes expected(given.size());
    std::vector<double> due(spec.size);
    bool later = false;
    for (const Segment& segment : segments) {
      std::vector<uint64_t> order(segment.end - segment.begin);
      std::iota(order.begin(), order.end(), segment.begin);
      for (uint64_t i : order) {
        totals.given[i] += At<float>(given, i) * e.given.value_scale;
        due[i] = (totals.given[i] - totals.sent[i]) / e.given.value_scale;
      }
      std::ranges::stable_sort(order, std::ranges::greater(), [&](uint64_t i) { return std::abs(due[i]); });
      const float part = std::ceil(spec.wire_topk * static_cast<float>(order.size()));
      const size_t most = std::clamp<size_t>(static_cast<size_t>(part), 1, order.size());
      for (size_t n = 0; n < most; ++n) {
        Store(expected, order[n], static_cast<float>(due[order[n]]));
        later |= due[order[n]] != At<float>(given, order[n]);
      }
    }
    if (later) context_.deeds.Add(Deed::kRestSent);
    return expected;
  }

  void NoteSent(const PreparedEvent& e, const std::vector<Segment>& segments, const Bytes& sent) {
    Totals& totals = totals_[{e.incarnation.value, e.given.table->id.value}];
    for (const Segment& segment : segments)
      for (uint64_t i = segment.begin; i < segment.end; ++i)
        totals.sent[i] += At<float>(sent, i) * e.given.value_scale;
  }

  static void RoundAll(const TableSpec& spec, Bytes& values) {
    if (spec.element != ElementType::kFloat32) return;
    for (size_t i = 0; i < values.size() / sizeof(float); ++i)
      Store(values, i, NaiveHalf(spec.wire, At<float>(values, i), false));
  }

  // Each key once: rows of an update are summed, of an assign the last one counts.
  void CheckRows(const PreparedEvent& e) {
    const TableSpec& spec = e.given.table->spec;
    const size_t row_bytes = spec.dim * WidthOf(spec);
    const Bytes given = Whole(e.given.values);
    const bool update = e.given.op == PushOp::kUpdate;
    std::map<RowKey, Bytes> expected, sent;
    for (size_t r = 0; r < e.given.keys.size(); ++r) {
      const auto from = given.begin() + static_cast<ptrdiff_t>(r * row_bytes);
      const Bytes row(from, from + static_cast<ptrdiff_t>(row_bytes));
      auto [it, first] = expected.try_emplace(e.given.keys[r], row);
      if (!first) it->second = update ? Sum(spec, it->second, row) : row;
    }
    for (auto& [key, row] : expected)
      if (update) RoundAll(spec, row);
    bool twice = false;
    ForEachSent(e, [&](const wire::SlotEntry&, auto keys, auto values) {
      for (size_t r = 0; r < keys.size(); ++r) {
        const auto row = values.subspan(r * row_bytes, row_bytes);
        twice |= !sent.try_emplace(keys[r], row.begin(), row.end()).second;
      }
    });
    if (twice || sent != expected)
      Violation(Words(e, twice ? "that has a key twice" : "with other keys or rows than were given"));
  }

  static Bytes Sum(const TableSpec& spec, const Bytes& a, const Bytes& b) {
    Bytes sum(a.size());
    for (size_t i = 0; i < a.size() / WidthOf(spec); ++i) {
      if (spec.element == ElementType::kInt64) {
        Store(sum, i, At<uint64_t>(a, i) + At<uint64_t>(b, i));
      } else {
        Store(sum, i, At<float>(a, i) + At<float>(b, i));
      }
    }
    return sum;
  }

  std::map<std::pair<uint64_t, uint32_t>, Totals> totals_;  // by (incarnation, table)
};

}  // namespace

CheckerPtr MakeGradients(Context& context) { return std::make_unique<Gradients>(context); }

}  // namespace cairn::sim
