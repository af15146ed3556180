// A round's state as bytes, for backups and copies (docs/internals/consistency.md, rules 40, 43 and 50).
#include "base/planted.h"
#include "server/round/round.h"

namespace cairn::server {
namespace {

void SaveStatus(const Status& status, ByteWriter& out) {
  out.Put(static_cast<uint8_t>(status.code()));
  out.PutText(status.message());
}

Status LoadStatus(ByteReader& in) {
  const auto code = in.Get<uint8_t>();
  std::string text = in.GetText();
  if (code == 0 || code > static_cast<uint8_t>(Code::kInternal)) return Status::Ok();
  return {static_cast<Code>(code), std::move(text)};
}

void SaveRefused(const std::vector<RefusedPart>& refused, ByteWriter& out) {
  out.Put(uint64_t{refused.size()});
  for (const RefusedPart& part : refused) {
    out.Put(part.incarnation.value);
    SaveStatus(part.why, out);
  }
}

std::vector<RefusedPart> LoadRefused(ByteReader& in) {
  std::vector<RefusedPart> refused;
  for (uint64_t n = in.GetCount(17); n > 0; --n) {
    const Incarnation incarnation{in.Get<uint64_t>()};
    refused.push_back({incarnation, LoadStatus(in)});
  }
  return refused;
}

void SaveContributors(const std::vector<Contributor>& contributors, ByteWriter& out) {
  out.Put(uint64_t{contributors.size()});
  for (const Contributor& c : contributors) {
    out.Put(c.incarnation.value);
    out.Put(c.rank.value);
    out.Put(c.weight);
    out.Put(static_cast<uint8_t>((c.live ? 1 : 0) | (c.gradient ? 2 : 0) | (c.refused ? 4 : 0)));
  }
}

std::vector<Contributor> LoadContributors(ByteReader& in) {
  std::vector<Contributor> contributors;
  for (uint64_t n = in.GetCount(21); n > 0; --n) {
    Contributor c;
    c.incarnation = Incarnation{in.Get<uint64_t>()};
    c.rank = Rank{in.Get<uint32_t>()};
    c.weight = in.Get<double>();
    const auto bits = in.Get<uint8_t>();
    c.live = (bits & 1) != 0, c.gradient = (bits & 2) != 0, c.refused = (bits & 4) != 0;
    contributors.push_back(c);
  }
  return contributors;
}

}  // namespace

void SaveClosed(const SlotRound::Closed& c, ByteWriter& out) {
  out.Put(c.divisor);
  out.Put(c.hyper);
  SaveStatus(c.outcome, out);
  out.Put(static_cast<uint8_t>(c.op));
  out.Put(c.column);
  out.Put(c.scale);
  out.Put(static_cast<uint8_t>((c.two_phase ? 1 : 0) | (c.skipped ? 2 : 0) | (c.all_joined ? 4 : 0) |
                               (c.counts ? 8 : 0)));
  out.Put(static_cast<uint8_t>(c.effect));
  SaveRefused(c.refused, out);
}

bool LoadClosed(ByteReader& in, SlotRound::Closed* c) {
  c->divisor = in.Get<double>();
  c->hyper = in.Get<Hyper>();
  c->outcome = LoadStatus(in);
  c->op = static_cast<PushOp>(in.Get<uint8_t>());
  c->column = in.Get<uint8_t>();
  c->scale = in.Get<double>();
  const auto bits = in.Get<uint8_t>();
  c->two_phase = (bits & 1) != 0, c->skipped = (bits & 2) != 0;
  c->all_joined = (bits & 4) != 0, c->counts = (bits & 8) != 0;
  const auto effect = in.Get<uint8_t>();
  if (effect > static_cast<uint8_t>(SlotRound::Effect::kAssign)) return false;
  c->effect = static_cast<SlotRound::Effect>(effect);
  c->refused = LoadRefused(in);
  return in.ok();
}

void SlotRound::SaveSummed(ByteWriter& out) const {
  out.Put(summed_->divisor);
  out.Put(static_cast<uint8_t>(summed_->something));
  out.Put(summed_->report);
  SaveContributors(summed_->contributors, out);
  out.Put(uint64_t{contributions_.size()});
  for (const Contribution& c : contributions_) {
    out.Put(c.incarnation.value);
    out.Put(c.rank.value);
    out.Put(c.weight);
    SaveStatus(c.refused, out);
  }
}

bool SlotRound::LoadSummed(Round round, ByteReader& in) {
  open_ = round;
  contributions_.clear();
  unfolded_ = 0;
  Summed summed;
  summed.divisor = in.Get<double>();
  summed.something = in.Get<uint8_t>() != 0;
  summed.report = in.Get<wire::SlotReport>();
  summed.contributors = LoadContributors(in);
  for (uint64_t n = in.GetCount(29); n > 0; --n) {
    Contribution c;
    c.incarnation = Incarnation{in.Get<uint64_t>()};
    c.rank = Rank{in.Get<uint32_t>()};
    c.weight = in.Get<double>();
    c.refused = LoadStatus(in);
    c.folded = true;
    if (!CAIRN_BUG(kSummedContributorsLost)) Add(std::move(c));
  }
  summed_ = std::move(summed);
  return in.ok();
}

void SlotRound::Save(ByteWriter& out) const {
  out.Put(open_.value);
  SaveStatus(last_outcome_, out);
  SaveRefused(last_refused_, out);
  out.Put(static_cast<uint8_t>(last_all_joined_));
  out.Put(static_cast<uint8_t>(summed_.has_value()));
  if (summed_) SaveSummed(out);
}

bool SlotRound::Load(ByteReader& in) {
  open_ = Round{in.Get<uint64_t>()};
  last_outcome_ = LoadStatus(in);
  last_refused_ = LoadRefused(in);
  last_all_joined_ = in.Get<uint8_t>() != 0;
  contributions_.clear();
  unfolded_ = 0;
  summed_.reset();
  if (in.Get<uint8_t>() != 0 && !LoadSummed(open_, in)) return false;
  return in.ok();
}

}  // namespace cairn::server
