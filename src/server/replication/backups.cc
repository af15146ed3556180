#include "server/replication/backups.h"

#include <algorithm>

#include "base/bounds.h"
#include "base/check.h"

namespace cairn::server {

size_t BackedSlot::CountFed() const {
  size_t fed = 0;
  for (const SlotBackup& backup : all) fed += backup.fed();
  return fed;
}

bool BackedSlot::Drained() const {
  if (deposed) return false;
  return std::all_of(all.begin(), all.end(), [](const SlotBackup& backup) {
    return !backup.waited() || (!backup.broken && backup.Confirmed());
  });
}

void Backups::TakeOver(uint32_t local) {
  BackedSlot& backed = backed_[local];
  backed.committed = slots_[local].index();
  backed.all.clear();
  backed.deposed = false;
}

void Backups::Clear(uint32_t local) {
  backed_[local].all.clear();
  backed_[local].deposed = false;
}

void Backups::Update(uint32_t local, const wire::SlotOwner& owner) {
  CAIRN_CHECK(slots_[local].primary());
  BackedSlot& backed = backed_[local];
  const auto same = [](const SlotBackup& have, const wire::Backup& want) {
    return have.server == want.server && have.added == want.added;
  };
  std::erase_if(backed.all, [&](const SlotBackup& have) {
    const bool stays = std::any_of(owner.backups.begin(), owner.backups.end(),
                                   [&](const wire::Backup& want) { return same(have, want); });
    return !stays;
  });
  // Nobody waits any more for those who are gone.
  for (SlotBackup& backup : backed.all) {
    std::erase_if(backup.caught_up_marks, [&](const auto& mark) {
      return std::none_of(backed.all.begin(), backed.all.end(), [&](const SlotBackup& other) {
        return other.waited() && other.stream == mark.first;
      });
    });
  }
  for (const wire::Backup& want : owner.backups) {
    auto it = std::find_if(backed.all.begin(), backed.all.end(),
                           [&](const SlotBackup& have) { return same(have, want); });
    if (it == backed.all.end()) {
      SlotBackup fresh;
      fresh.server = want.server;
      fresh.added = want.added;
      fresh.stream = StreamTo(want.server, want.thread);
      if (fresh.stream == nullptr) continue;  // the decoder has seen to it that the server is there
      if (want.in_sync) fresh.phase = SlotBackup::Phase::kInSync;
      fresh.confirmed_index = backed.committed;
      fresh.since_us = context_.now_us();
      backed.all.push_back(std::move(fresh));
    } else if (want.in_sync && it->phase == SlotBackup::Phase::kWaited) {
      it->phase = SlotBackup::Phase::kInSync;
    }
  }
}

BackupStream* Backups::StreamTo(uint16_t server, uint16_t thread) {
  const wire::ServerInfo* peer = context_.state().FindServer(server);
  if (peer == nullptr) return nullptr;
  auto& stream = streams_[{peer->incarnation, thread}];
  if (stream == nullptr) {
    ReplicaRoute route;
    route.cluster_id = context_.state().cluster_id;
    route.from_server = static_cast<uint16_t>(context_.server_index());
    route.from_thread = static_cast<uint16_t>(context_.options().thread);
    route.from_incarnation = context_.incarnation();
    route.to_server = server;
    route.to_thread = thread;
    route.to_incarnation = peer->incarnation;
    route.endpoint = peer->endpoint;
    const PeerLink::Times times{.resend_after_us = context_.options().resend_after_us};
    stream = std::make_unique<BackupStream>(std::move(route), times, network_, context_.pool(),
                                            senders_by_conn_, listener_);
    stream->sender.Start(context_.now_us());
  }
  return stream.get();
}

BackupStream* Backups::Find(const ReplicaSender& sender) {
  auto found = std::find_if(streams_.begin(), streams_.end(),
                            [&](const auto& item) { return &item.second->sender == &sender; });
  return found == streams_.end() ? nullptr : found->second.get();
}

ReplicaSender* Backups::SenderOn(ConnId conn) {
  auto sender = senders_by_conn_.find(conn);
  return sender == senders_by_conn_.end() ? nullptr : sender->second;
}

std::vector<std::unique_ptr<BackupStream>> Backups::TakeGone() {
  std::vector<std::unique_ptr<BackupStream>> gone;
  const auto& servers = context_.state().servers;
  for (auto it = streams_.begin(); it != streams_.end();) {
    const Incarnation incarnation = it->first.first;
    const bool there = std::any_of(servers.begin(), servers.end(),
                                   [&](const auto& server) { return server.incarnation == incarnation; });
    if (there) {
      ++it;
      continue;
    }
    BackupStream* const stream = it->second.get();
    stream->sender.Stop();
    for (BackedSlot& backed : backed_)
      for (SlotBackup& backup : backed.all)
        std::erase_if(backup.caught_up_marks, [&](const auto& mark) { return mark.first == stream; });
    gone.push_back(std::move(it->second));
    it = streams_.erase(it);
  }
  return gone;
}

void Backups::FlushIfFull(ReplicaSender& sender) {
  if (sender.batch().bytes() < context_.options().bounds.batch_bytes) return;
  CAIRN_AT_BOUND(kBatchBytes);
  sender.Flush(context_.version().value, context_.now_us());
}

void Backups::FlushAll() {
  for (auto& [key, stream] : streams_) stream->sender.Flush(context_.version().value, context_.now_us());
}

bool Backups::Slow(const ReplicaSender& sender) const {
  return std::min(sender.oldest_unconfirmed_us(context_.now_us()), context_.now_us() - context_.awake_us()) >=
         context_.options().slow_after_us;
}

void Backups::Shipped(uint32_t local, SlotBackup& backup, bool note) {
  ReplicaSender& sender = backup.stream->sender;
  CAIRN_CHECK(sender.next_number() >= backup.shipped && sender.next_number() > sender.confirmed());
  CAIRN_CHECK(slots_[local].primary() && backup.fed());
  backup.shipped = sender.next_number();
  if (backup.first_shipped == 0) backup.first_shipped = backup.shipped;
  if (note) backup.stream->notes.push_back({backup.shipped, local, slots_[local].index()});
  FlushIfFull(sender);
}

void Backups::Break(SlotBackup& backup) {
  backup.broken = true;
  news_.Raise();
}

void Backups::OnSlotRefused(BackupStream& stream, const wire::SlotEntry& entry, uint64_t up_to) {
  const uint32_t local = slots_.LocalOfAny(entry.slot);
  if (local == OwnedSlots::kNotHere || !slots_[local].primary()) return;
  if (CAIRN_BUG(kRefusedSlotCounts)) return;
  BackedSlot& backed = backed_[local];
  if (entry.number > slots_[local].epoch()) {
    backed.deposed = true;
    return;
  }
  for (SlotBackup& backup : backed.all) {
    // Of what came before this backup was one, nothing counts.
    if (backup.stream != &stream || backup.broken || backup.first_shipped == 0) continue;
    if (up_to < backup.first_shipped) continue;
    Break(backup);
  }
}

void Backups::OnConfirmed(BackupStream& stream, uint64_t up_to) {
  CAIRN_CHECK(up_to < stream.sender.next_number());  // what was never shipped is not confirmed
  for (; !stream.notes.empty() && stream.notes.front().number <= up_to; stream.notes.pop_front()) {
    const BackupStream::Note& note = stream.notes.front();
    for (SlotBackup& backup : backed_[note.local].all)
      if (backup.stream == &stream && !backup.broken)
        backup.confirmed_index = std::max(backup.confirmed_index, note.index);
    Recommit(note.local);
  }
}

void Backups::Recommit(uint32_t local) {
  BackedSlot& backed = backed_[local];
  uint64_t committed = slots_[local].index();
  // What has not been done is not committed. (A note may be of a slot whose primary is elsewhere by now.)
  CAIRN_CHECK(backed.committed <= committed || !slots_[local].primary() || CAIRN_ANY_BUG);
  for (const SlotBackup& backup : backed.all)
    if (backup.waited()) committed = std::min(committed, backup.confirmed_index);
  if (committed <= backed.committed) return;
  backed.committed = committed;
  backed.commit_untold = true;
}

bool Backups::Feeds(const BackupStream& stream) const {
  for (const BackedSlot& backed : backed_)
    for (const SlotBackup& backup : backed.all)
      if (backup.stream == &stream && backup.fed()) return true;
  return false;
}

Status Backups::CheckBacklog() const {
  for (const auto& [key, stream] : streams_) {
    const uint64_t unconfirmed = stream->sender.unconfirmed_bytes();
    if (unconfirmed <= context_.options().most_unconfirmed_bytes) continue;
    if (!Feeds(*stream)) continue;  // its server has been dropped: what it still lacks delays nobody
    CAIRN_AT_BOUND(kUnconfirmedBytes);
    return {Code::kResourceExhausted, context_.name() + " waits for " + stream->sender.Describe() +
                                          ", which has not confirmed " + std::to_string(unconfirmed) +
                                          " bytes"};
  }
  return Status::Ok();
}

bool Backups::WaitsFor(uint32_t local, uint32_t server) const {
  const auto& all = backed_[local].all;
  return std::any_of(all.begin(), all.end(),
                     [&](const SlotBackup& backup) { return backup.server == server && backup.waited(); });
}

uint64_t Backups::sent_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, stream] : streams_) bytes += stream->sender.sent_bytes();
  return bytes;
}

uint64_t Backups::unconfirmed_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, stream] : streams_) bytes += stream->sender.unconfirmed_bytes();
  return bytes;
}

}  // namespace cairn::server
