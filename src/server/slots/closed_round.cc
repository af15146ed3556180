#include "server/slots/closed_round.h"

#include <string>
#include <utility>

namespace cairn::server {

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

void SaveClosed(const ClosedRound& c, ByteWriter& out) {
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

bool LoadClosed(ByteReader& in, ClosedRound* c) {
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
  if (effect > static_cast<uint8_t>(ClosedRound::Effect::kAssign)) return false;
  c->effect = static_cast<ClosedRound::Effect>(effect);
  c->refused = LoadRefused(in);
  return in.ok();
}

}  // namespace cairn::server
