#include "server/node/shard_node.h"

#include <utility>

#include "wire/control.h"

namespace cairn::server {
namespace {
using transport::Loop;
constexpr int64_t kShardTickUs = 100'000;
constexpr int64_t kReportEveryUs = 1'000'000;
// A report says something of every slot. Of few it is made with every piece of news; of many not more often
// than this, nor less often than the tick.
constexpr size_t kFewSlots = 4096;
constexpr int64_t kGapUsASlot = 2;
}  // namespace

ShardNode::ShardNode(const ShardOptions& options, transport::ReceiptBudget& receipts, OnReport on_report,
                     LogLine log)
    : options_(options),
      on_report_(std::move(on_report)),
      loop_("cairn-shard-" + std::to_string(options.thread)),
      network_(
          loop_, pool_,
          {.on_connected = [this](ConnId conn) { shard_->OnConnected(conn, Loop::NowUs()); },
           .on_message =
               [this](ConnId conn, wire::InFrame& frame) {
                 shard_->OnMessage(conn, frame, Loop::NowUs());
                 has_news_ |= shard_->TakeNewsFlag();
                 if (has_news_ && Loop::NowUs() - last_report_us_ >= report_gap_us_) Report();
               },
           .on_disconnect = [this](ConnId conn) { shard_->OnDisconnect(conn, Loop::NowUs()); }},
          {.accepts = IsHelloReply,
           .most_body = [this](ConnId,
                               const wire::FrameHeader& header) { return shard_->MostBodyBytes(header); },
           .receipts = &receipts,
           .most_answer = [this](ConnId,
                                 const wire::FrameHeader& header) { return shard_->MostAnswerBytes(header); },
           .log = std::move(log)}),
      shard_(Shard::Make(options_, network_, pool_)) {}

ShardNode::~ShardNode() { loop_.Stop(); }

void ShardNode::Start() {
  loop_.SetTick([this] { return OnTick(); });
  loop_.Start();
}

void ShardNode::Adopt(transport::AcceptedConnection connection) {
  auto held = std::make_shared<transport::AcceptedConnection>(std::move(connection));
  loop_.Post([this, held] { network_.Adopt(std::move(*held)); });
}

void ShardNode::Registered(uint32_t server_index, Incarnation incarnation) {
  loop_.Post([this, server_index, incarnation] { shard_->OnRegistered(server_index, incarnation); });
}

void ShardNode::State(std::shared_ptr<const wire::ClusterState> state) {
  loop_.Post([this, state = std::move(state)] {
    shard_->OnState(state, Loop::NowUs());
    Report();
  });
}

void ShardNode::CloseConnections() {
  loop_.Post([this] { network_.CloseAll(); });
}

int64_t ShardNode::OnTick() {
  shard_->OnTick(Loop::NowUs());
  has_news_ |= shard_->TakeNewsFlag();
  if (has_news_ || Loop::NowUs() - last_report_us_ >= kReportEveryUs) Report();
  return kShardTickUs;
}

void ShardNode::Report() {
  last_report_us_ = Loop::NowUs();
  has_news_ = false;
  wire::NodeStats stats = shard_->stats();
  stats.bytes_in = network_.bytes_in();  // as they travelled: frames may have been coded
  stats.bytes_out = network_.bytes_out();
  std::vector<wire::SlotLoad> loads = shard_->loads();
  report_gap_us_ = loads.size() > kFewSlots ? static_cast<int64_t>(loads.size()) * kGapUsASlot : 0;
  on_report_(options_.thread, {shard_->version(), shard_->hold_view(), shard_->hold_rounds(), stats,
                               shard_->news(), std::move(loads), shard_->hot_rows(), shard_->reusable_bytes(),
                               shard_->stalled(), shard_->passed_state()});
}

}  // namespace cairn::server
