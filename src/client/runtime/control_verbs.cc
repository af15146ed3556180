#include "client/runtime/control_verbs.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "client/partition/table_batches.h"

namespace cairn {
using client::ClientCore;

int64_t DeadlineUs(const ClientOptions& options, int64_t timeout_ms) {
  constexpr int64_t kMostMs = int64_t{1} << 50;  // "for ever" must not overflow
  return LoopSide::NowUs() + std::min(timeout_ms > 0 ? timeout_ms : options.call_timeout_ms, kMostMs) * 1000;
}

Status ControlVerbs::Start() {
  return BlockingCall(
      [this](int64_t deadline_us, ClientCore::Done done) {
        loop_.core().Start(deadline_us, std::move(done), LoopSide::NowUs());
      },
      options_.connect_timeout_ms);
}

Status ControlVerbs::BlockingCall(
    const std::function<void(int64_t deadline_us, ClientCore::Done done)>& start, int64_t timeout_ms) {
  auto state = std::make_shared<PendingState>(false);
  const int64_t deadline_us = DeadlineUs(options_, timeout_ms);
  // In a trip it is sent by the wait, behind what was begun before it.
  const auto call = [this, state, deadline_us, start] {
    loop_.CallBegun();
    start(deadline_us, [this, state](Status status) {
      loop_.CallEnded();
      state->Complete(std::move(status));
    });
  };
  const Status posted = hand_over_.Begin(call, *state);
  return posted.ok() ? state->Wait() : posted;
}

Result<uint64_t> ControlVerbs::NextRound(const wire::TableInfo& info) {
  if (info.spec.mode != Mode::kSync)
    return {Code::kInvalidArgument, "table \"" + info.spec.name + "\" is asynchronous: it has no rounds"};
  auto round = std::make_shared<uint64_t>(0);
  const Status asked = BlockingCall(
      [this, round, id = info.id](int64_t, const ClientCore::Done& done) {
        *round = loop_.core().next_round(id).value;
        done(loop_.core().fatal());
      },
      0);
  if (!asked.ok()) return asked;
  return *round;
}

Result<wire::TableInfo> ControlVerbs::CreateTable(TableSpec spec) {
  auto info = std::make_shared<wire::TableInfo>();
  const Status created = BlockingCall(
      [this, info, spec = std::move(spec)](int64_t deadline_us, ClientCore::Done done) {
        auto made = [info, done = std::move(done)](Result<wire::TableInfo> result) {
          if (result.ok()) *info = *result;
          done(result.status());
        };
        loop_.core().CreateTable(spec, deadline_us, std::move(made), LoopSide::NowUs());
      },
      0);
  if (!created.ok()) return created;
  return *info;
}

Result<std::vector<wire::TableInfo>> ControlVerbs::CreateTables(std::vector<TableSpec> specs) {
  if (specs.empty()) return std::vector<wire::TableInfo>();
  struct Parts {
    std::vector<std::vector<wire::TableInfo>> made;
    size_t left = 0;
    Status failed;
  };
  auto parts = std::make_shared<Parts>();
  const Status created = BlockingCall(
      [this, parts, cut = client::InMessages(std::move(specs))](int64_t deadline_us,
                                                                const ClientCore::Done& done) {
        parts->made.resize(cut.size());
        parts->left = cut.size();
        for (size_t i = 0; i < cut.size(); ++i) {
          auto ended = [parts, i, done](const Result<std::vector<wire::TableInfo>>& result) {
            if (result.ok()) {
              parts->made[i] = *result;
            } else if (parts->failed.ok()) {
              parts->failed = result.status();
            }
            if (--parts->left == 0) done(parts->failed);
          };
          loop_.core().CreateTables(cut[i], deadline_us, std::move(ended), LoopSide::NowUs());
        }
      },
      0);
  if (!created.ok()) return created;
  std::vector<wire::TableInfo> all;
  for (auto& made : parts->made) std::move(made.begin(), made.end(), std::back_inserter(all));
  return all;
}

Status ControlVerbs::DropTable(const std::string& name) {
  return BlockingCall(
      [this, name](int64_t deadline_us, ClientCore::Done done) {
        loop_.core().DropTable(name, deadline_us, std::move(done), LoopSide::NowUs());
      },
      0);
}

Result<Client::Traffic> ControlVerbs::Traffic() {
  auto traffic = std::make_shared<Client::Traffic>();
  const Status asked = BlockingCall(
      [this, traffic](int64_t, const ClientCore::Done& done) {
        *traffic = {loop_.network().bytes_out(), loop_.network().bytes_in()};
        done(Status::Ok());
      },
      0);
  if (!asked.ok()) return asked;
  return *traffic;
}

Result<std::vector<uint64_t>> ControlVerbs::Staleness() {
  auto staleness = std::make_shared<std::vector<uint64_t>>();
  const Status asked = BlockingCall(
      [this, staleness](int64_t, const ClientCore::Done& done) {
        *staleness = loop_.core().staleness();
        done(Status::Ok());
      },
      0);
  if (!asked.ok()) return asked;
  return std::move(*staleness);
}

Pending ControlVerbs::BeginBarrier() {
  waits_.NoteCaller();
  auto state = std::make_shared<PendingState>(true);
  const Status posted = hand_over_.Begin(
      [this, state, deadline_us = DeadlineUs(options_, 0)] {
        loop_.CallBegun();
        auto done = [this, state](Status status) {
          loop_.CallEnded();
          state->Complete(std::move(status));
        };
        loop_.core().Barrier(deadline_us, std::move(done), LoopSide::NowUs());
      },
      *state);
  return posted.ok() ? PendingState::PendingOf(std::move(state)) : PendingState::Ready(posted);
}

Status ControlVerbs::Leave() {
  return BlockingCall(
      [this](int64_t deadline_us, ClientCore::Done done) {
        loop_.core().Leave(deadline_us, std::move(done), LoopSide::NowUs());
      },
      0);
}

}  // namespace cairn
