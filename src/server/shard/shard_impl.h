// The shard as it is. One class, its work in several files, each with one job:
//   shard.cc          frames in: handshake, fencing, dispatch; small things the others use
//   shard_state.cc    a new state: clients, slots, tables, views, holds, the end
//   pushes.cc         numbered pushes
//   round_frames.cc   marks, contributions and decisions of sync rounds: checked, recorded, parked
//   contributions.cc  the parts of contributions, staged
//   closing.cc        which rounds are summed up or close, and whose wait is over then
//   answers.cc        what they are told
//   pulls.cc          reads
//   slot_owners.cc    what a new state makes of the slots: promotion, handing over, letting go
//   replication.cc    as the primary: what goes to the backups, and what their confirmations mean
//   held_answers.cc   answers that wait for confirmations
//   backup_operations.cc  as a backup: operations taken and applied
//   slot_copy.cc      a whole slot as bytes
//   work.cc           reports of slots' sizes and work, and of the rows that are asked for most
// One thread; nothing here blocks or allocates per slot or key on the paths of pushes and pulls.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/replication/backup_side.h"
#include "server/replication/commit_gate.h"
#include "server/replication/primary_side.h"
#include "server/shard/live_clients.h"
#include "server/shard/news_flag.h"
#include "server/shard/outbox.h"
#include "server/shard/owned_slots.h"
#include "server/shard/parked.h"
#include "server/shard/refusal_texts.h"
#include "server/shard/request.h"
#include "server/replication/slot_content.h"
#include "server/shard/shard.h"
#include "server/shard/shard_context.h"
#include "server/shard/slot_roles.h"
#include "server/shard/tables.h"
#include "wire/data.h"
#include "wire/replica.h"

namespace cairn::server {

class ShardImpl final : public Shard, private PrimarySide::Listener {
 public:
  ShardImpl(const ShardOptions& options, Network& network, BufferPool& pool, ShardObserver* observer)
      : context_(options, pool, observer), network_(network), outbox_(context_, network) {}

  void OnRegistered(uint32_t server_index, Incarnation incarnation) override;
  void OnState(std::shared_ptr<const wire::ClusterState> state, int64_t now_us) override;
  void OnConnected(ConnId conn, int64_t now_us) override;
  void OnMessage(ConnId conn, wire::InFrame& frame, int64_t now_us) override;
  void OnDisconnect(ConnId conn, int64_t now_us) override;
  void OnTick(int64_t now_us) override;

  StateVersion version() const override { return context_.version(); }
  ViewNumber hold_view() const override { return hold_view_; }
  std::vector<wire::TableRound> hold_rounds() const override { return hold_rounds_; }
  wire::NodeStats stats() const override;
  uint64_t MostBodyBytes(const wire::FrameHeader& header) const override;
  uint64_t MostAnswerBytes(const wire::FrameHeader& header) const override;
  uint64_t reusable_bytes() const override { return tables_.reusable_bytes(); }
  bool TakeNewsFlag() override { return news_.Take(); }
  std::vector<wire::SlotNews> news() const override { return primary_side_.news(); }
  std::vector<wire::SlotLoad> loads() const override { return tables_.loads(); }
  HotReport hot_rows() const override { return tables_.hot_rows(); }
  std::vector<wire::StalledRound> stalled() const override;
  std::shared_ptr<const wire::ClusterState> passed_state() const override { return passed_state_; }
  SlotRole RoleOf(SlotId slot) const override;
  Position Received(SlotId slot) const override;
  Position Applied(SlotId slot) const override;
  uint64_t ContentHash(SlotId slot) const override;
  bool WaitsFor(SlotId slot, uint32_t server) const override;
  HighWater high_water() const override;
  uint64_t early_bytes() const override { return tables_.early_bytes(); }
  uint64_t looks_at_rows() const override { return tables_.looks_at_rows(); }
  Seq LastSeq(SlotId slot, Incarnation incarnation) const override;
  std::vector<Refusal> RefusalsOf(SlotId slot, Incarnation incarnation) const override;
  Round OpenRound(TableId table, SlotId slot) const override;
  void ForEachRow(TableId table, SlotId slot,
                  const std::function<void(RowKey, std::span<const std::byte>)>& row) const override;

 private:
  void OnConfirmed(const BackupStream& stream) override { gate_.OnConfirmed(stream); }
  void OnStreamGone(const BackupStream& stream) override { gate_.OnStreamGone(stream); }

  // What an answer with values is made of.
  struct Reading {
    std::span<const wire::SlotEntry> entries;
    std::span<const RowKey> keys;
    uint8_t column = 0;
    uint16_t reply_flags = 0;
    bool every_slot = false;  // the answer says something of all slots here
  };
  // Of a pull: all of its entries name the same (the decoder sees to it).
  static uint8_t ColumnOf(std::span<const wire::SlotEntry> entries) {
    return entries.empty() ? 0 : static_cast<uint8_t>(entries.front().number);
  }

  // shard.cc
  void Dispatch(ConnId conn, wire::InFrame& frame, int64_t now_us);
  void OnControl(ConnId conn, const wire::InFrame& frame);
  bool ComparesStates(ConnId conn, wire::ControlMessage& message);
  Status CheckHello(const wire::Hello& hello) const;
  Status Fence(const wire::FrameHeader& header, const LiveClient** client);
  void TellFenced(const wire::InFrame& frame, const Status& why);
  void Violation(ConnId conn, const wire::FrameHeader& request, const Status& error);  // and closes
  void TellStillWaiting(int64_t now_us);
  uint32_t WaitsAt(const TableState& table, const ParkedRequest& request) const;  // local slot

  // shard_state.cc
  void UpdateClients();
  void UpdateHold();
  void AnswerAllParked(const Status& error);

  // pushes.cc
  void OnPush(const Request& request);
  void TakePush(const Request& request);
  void PushPart(const Request& request, TableState* table, const Status& shape,
                const wire::PushParams& params, const Part& part);
  void RefusePart(const Request& request, const Part& part, const Hyper& hyper, const Status& why);
  void AddProblem(uint32_t slot, Code code, uint64_t number, const std::string& text);
  void ObservePush(const Request& request, const Part& part, Outcome outcome, Code code, const Hyper& hyper,
                   Position position);

  // work.cc
  void CountPull(TableState& table, uint32_t local, std::span<const RowKey> keys, size_t bytes) {
    slots_[local].work.Pull(keys.size(), bytes);
    table.hot.Note(keys);
  }

  // round_frames.cc
  void OnRoundFrame(const Request& request);
  void GiveUpSummedUp(const Request& request, TableState& table);
  Status CheckRound(const Request& request, const TableState& table, const wire::PushView& push,
                    bool marks) const;
  void AwaitRound(const Request& request, TableState& table, const wire::PushView& push, bool marks);

  // contributions.cc
  Status StageParts(const Request& request, TableState& table, const wire::PushView& push,
                    std::shared_ptr<KeptFrame>* kept);
  Status StagePart(const Request& request, TableState& table, const Part& part, Contribution contribution,
                   std::shared_ptr<KeptFrame>* kept);
  void ReopenRound(const Request& request, TableState& table, const wire::PushParams& params,
                   const Part& part);  // a planted bug's

  // closing.cc
  bool NothingToDo(const TableState& table) const;
  void Reconsider(TableState& table);                                            // every slot
  void Reconsider(TableState& table, std::span<const wire::SlotEntry> entries);  // these
  void CloseWhatMay(TableState& table, uint32_t local);
  void SumUp(TableState& table, uint32_t local);
  void CloseOnce(TableState& table, uint32_t local);
  void Wake(TableState& table, Round lowest_before);
  // This slot does not keep the request waiting.
  static bool Reached(const SlotRound& round, const ParkedRequest& request);
  void AdvanceParked(TableState& table, ParkedRequest& request);

  // answers.cc
  void Answer(TableState& table, ParkedRequest& request);
  template <class Look>
  void ForEachSlotOf(const ParkedRequest& request, Look look) const;
  bool AllJoined(const TableState& table, const ParkedRequest& request) const;
  void AnswerRound(TableState& table, const ParkedRequest& request);
  void SendRoundAnswer(const ParkedRequest& request, wire::FramePtr frame);
  void SendReport(TableState& table, const ParkedRequest& request, uint16_t joined);
  wire::DataParts RoundReply(const TableState& table, const wire::FrameHeader& request) const;

  // pulls.cc
  void OnPull(const Request& request);
  Status CheckReading(const wire::FrameHeader& request, const TableState& table, const Reading& reading,
                      uint64_t* bytes) const;
  // A PullReply or a RoundReply, as the request asks.
  void SendValues(ConnId conn, const wire::FrameHeader& request, TableState& table, const Reading& reading);

  ShardContext context_;
  Network& network_;
  Outbox outbox_;
  NewsFlag news_;

  std::map<ConnId, Incarnation> connections_;  // those that have said a good Hello
  std::shared_ptr<const wire::ClusterState> passed_state_;  // newer than state_, or null

  LiveClients clients_;
  OwnedSlots slots_;
  Tables tables_{context_, slots_};
  SlotContent content_{context_, clients_, slots_, tables_};
  ParkedRequests parked_;
  ViewNumber hold_view_;
  std::vector<wire::TableRound> hold_rounds_;

  PrimarySide primary_side_{context_, network_, slots_, content_, news_, *this};
  BackupSide backup_side_{context_, outbox_, clients_, slots_, tables_, content_};
  CommitGate gate_{context_, slots_, primary_side_.backups(), outbox_};
  SlotRoles roles_{context_, slots_, primary_side_, backup_side_, news_};

  wire::NodeStats stats_;
  uint64_t parts_pushed_ = 0;     // a planted bug's counter
  bool only_duplicates_ = false;  // another's: of the push under way
  // Kept between frames so that their memory is.
  std::vector<wire::SlotEntry> problems_;
  std::string problem_text_;
  std::shared_ptr<const Buffer> push_body_;  // of the push that is taken now, where there are backups
  std::vector<wire::SlotEntry> reply_entries_;
  std::vector<uint32_t> moved_slots_;  // summed up or closed
  std::vector<ParkedId> woken_;
};

}  // namespace cairn::server
