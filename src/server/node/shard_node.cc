#include "server/node/shard_node.h"

#include <utility>

#include "wire/control.h"

namespace cairn::server {
namespace {
using transport::Loop;
constexpr int64_t kShardTickUs = 100'000;
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
                 if (timer_.AfterMessage(shard_->TakeNewsFlag(), Loop::NowUs())) Report();
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
    (void)shard_->TakeNewsFlag();
    Report();
  });
}

void ShardNode::CloseConnections() {
  loop_.Post([this] { network_.CloseAll(); });
}

int64_t ShardNode::OnTick() {
  shard_->OnTick(Loop::NowUs());
  if (timer_.OnTick(shard_->TakeNewsFlag(), Loop::NowUs())) Report();
  return kShardTickUs;
}

void ShardNode::Report() {
  ShardReport report = ReportOf(*shard_);
  report.stats.bytes_in = network_.bytes_in();  // as they travelled: frames may have been coded
  report.stats.bytes_out = network_.bytes_out();
  timer_.Reported(report, Loop::NowUs());
  on_report_(options_.thread, std::move(report));
}

}  // namespace cairn::server
