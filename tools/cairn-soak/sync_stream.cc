// Sync load: in every round each worker adds its numbered update to a place of its own in the
// shared tables, and two votes to a control place: "I take part" and "I am finished". Everybody
// sees the same control values after the same round, so all stop a table at the same round: the
// first one in which every participant was finished.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "ledger.h"
#include "streams.h"

namespace soak {

cairn::Result<cairn::DenseTable> OpenSyncDense(cairn::Client& client, const Options& options,
                                               uint32_t world) {
  cairn::TableSpec spec;
  spec.name = "soak.sync.dense";
  spec.element = cairn::ElementType::kInt64;
  spec.mode = cairn::Mode::kSync;
  spec.size = SyncDenseSize(options, world);
  return client.CreateDense(spec);
}

cairn::Result<cairn::DenseTable> OpenFlags(cairn::Client& client) {
  cairn::TableSpec spec;
  spec.name = "soak.flags";
  spec.element = cairn::ElementType::kInt64;
  spec.size = 2;
  return client.CreateDense(spec);
}

namespace {

// One sync table of a life: what it sends each round, and whether the table is at its end.
class Participant {
 public:
  Participant(const Life& life, Stream stream)
      : life_(life), stream_(stream), count_(Remaining(life, stream)) {}
  virtual ~Participant() = default;

  bool stopped() const { return stopped_; }
  void Stop() { stopped_ = true; }
  int flag() const { return stream_ == kSyncDense ? 0 : 1; }

  // The votes so far. A worker that joins may find that the others have stopped: then the round
  // before its first one never closes, and the pull ends by its deadline.
  cairn::Pending StartBaseline() { return Pull(); }
  void BaselineRead() { Votes(&taking_part_, &finished_); }

  cairn::Pending StartRound() {
    Entry update{};
    finishing_ = next_ > count_ || ToldToEnd(*life_.options);
    if (!finishing_) {
      update = UpdateOf(next_);
      life_.account->Submitted(life_.number, stream_, next_);
    }
    Fill(update, finishing_ ? 1 : 0);
    watch_ = Stopwatch();
    return PushPull();
  }

  void RoundClosed() {
    if (!finishing_) life_.account->Acknowledged(life_.number, stream_, next_++, watch_.us());
    const int64_t taking_part = taking_part_, finished = finished_;
    Votes(&taking_part_, &finished_);
    stopped_ = taking_part_ - taking_part == finished_ - finished;
  }

 protected:
  cairn::PushPullOptions RoundOptions() const {
    cairn::PushPullOptions options;
    options.timeout_ms = life_.options->round_timeout_ms;
    return options;
  }
  virtual cairn::Pending Pull() = 0;
  virtual cairn::Pending PushPull() = 0;
  virtual void Fill(const Entry& update, int64_t finished) = 0;
  virtual void Votes(int64_t* taking_part, int64_t* finished) const = 0;
  const Life& life_;

 private:
  const Stream stream_;
  const uint64_t count_;
  uint64_t next_ = 1;
  Stopwatch watch_;  // of the round under way
  bool finishing_ = false, stopped_ = false;
  int64_t taking_part_ = 0, finished_ = 0;
};

class DenseParticipant : public Participant {
 public:
  DenseParticipant(const Life& life, cairn::DenseTable table)
      : Participant(life, kSyncDense),
        table_(std::move(table)),
        values_(table_.size()),
        out_(table_.size()) {}

 protected:
  cairn::Pending Pull() override {
    return table_.Pull(std::span<int64_t>(out_), {life_.options->round_timeout_ms});
  }
  cairn::Pending PushPull() override {
    return table_.PushPull(std::span<const int64_t>(values_), std::span<int64_t>(out_), RoundOptions());
  }
  void Fill(const Entry& update, int64_t finished) override {
    values_[0] = 1;
    values_[1] = finished;
    int64_t* region = &values_[RegionOf(*life_.options, life_.rank, life_.number)];
    for (uint64_t i = 0; i < life_.options->region; ++i) region[i] = update[i % 4];
  }
  void Votes(int64_t* taking_part, int64_t* finished) const override {
    *taking_part = out_[0];
    *finished = out_[1];
  }

 private:
  cairn::DenseTable table_;
  std::vector<int64_t> values_, out_;
};

class SparseParticipant : public Participant {
 public:
  SparseParticipant(const Life& life, cairn::SparseTable table)
      : Participant(life, kSyncSparse),
        table_(std::move(table)),
        keys_(KeysOf(life.rank, life.number, life.options->keys)) {
    keys_.insert(keys_.begin(), kControlKey);
    values_.resize(keys_.size() * 4);
    out_.resize(values_.size());
  }

 protected:
  cairn::Pending Pull() override {
    return table_.Pull(keys_, std::span<int64_t>(out_), {life_.options->round_timeout_ms});
  }
  cairn::Pending PushPull() override {
    return table_.PushPull(keys_, std::span<const int64_t>(values_), std::span<int64_t>(out_),
                           RoundOptions());
  }
  void Fill(const Entry& update, int64_t finished) override {
    values_[0] = 1;
    values_[1] = finished;
    for (size_t i = 4; i < values_.size(); ++i) values_[i] = update[i % 4];
  }
  void Votes(int64_t* taking_part, int64_t* finished) const override {
    *taking_part = out_[0];
    *finished = out_[1];
  }

 private:
  cairn::SparseTable table_;
  std::vector<cairn::RowKey> keys_;
  std::vector<int64_t> values_, out_;
};

// True if some worker has seen the table's last round: whoever joined after it finds nobody there.
cairn::Result<bool> AlreadyOver(cairn::DenseTable& flags, int flag) {
  std::vector<int64_t> seen(flags.size());
  if (auto s = flags.Pull(std::span<int64_t>(seen)).Wait(); !s.ok()) return s;
  return seen[static_cast<size_t>(flag)] > 0;
}

cairn::Status AnnounceEnd(cairn::DenseTable& flags, int flag) {
  std::vector<int64_t> add(flags.size());
  add[static_cast<size_t>(flag)] = 1;
  return flags.Push(std::span<const int64_t>(add)).Wait();
}

// A wait that ended by its deadline is the table's end if somebody has announced it: nobody else
// takes part any more.
cairn::Status OverOr(const cairn::Status& status, Participant& participant, cairn::DenseTable& flags) {
  if (status.code() != cairn::Code::kDeadlineExceeded) return status;
  auto over = AlreadyOver(flags, participant.flag());
  if (!over.ok()) return over.status();
  if (!*over) return status;
  participant.Stop();
  return cairn::Status::Ok();
}

cairn::Status Begin(Participant& participant, cairn::DenseTable& flags) {
  auto over = AlreadyOver(flags, participant.flag());
  if (!over.ok()) return over.status();
  if (*over) {
    participant.Stop();
    return cairn::Status::Ok();
  }
  if (auto s = participant.StartBaseline().Wait(); !s.ok()) return OverOr(s, participant, flags);
  participant.BaselineRead();
  return cairn::Status::Ok();
}

cairn::Status FinishRound(Participant& participant, cairn::Pending& round, cairn::DenseTable& flags) {
  if (auto s = round.Wait(); !s.ok()) return OverOr(s, participant, flags);
  participant.RoundClosed();
  return participant.stopped() ? AnnounceEnd(flags, participant.flag()) : cairn::Status::Ok();
}

}  // namespace

cairn::Status RunSync(const Life& life) {
  auto dense_table = OpenSyncDense(*life.client, *life.options, life.world);
  if (!dense_table.ok()) return dense_table.status();
  auto sparse_table = OpenSparse(*life.client, true);
  if (!sparse_table.ok()) return sparse_table.status();
  auto flags = OpenFlags(*life.client);
  if (!flags.ok()) return flags.status();
  DenseParticipant dense(life, *dense_table);
  SparseParticipant sparse(life, *sparse_table);
  if (auto s = Begin(dense, *flags); !s.ok()) return s;
  if (auto s = Begin(sparse, *flags); !s.ok()) return s;
  while (!dense.stopped() || !sparse.stopped()) {
    // Both rounds are started before either is awaited: a worker that joined may be one round
    // further in one table than in the other.
    cairn::Pending dense_round = dense.stopped() ? cairn::Pending() : dense.StartRound();
    cairn::Pending sparse_round = sparse.stopped() ? cairn::Pending() : sparse.StartRound();
    if (!dense.stopped())
      if (auto s = FinishRound(dense, dense_round, *flags); !s.ok()) return s;
    if (!sparse.stopped())
      if (auto s = FinishRound(sparse, sparse_round, *flags); !s.ok()) return s;
    if (life.options->pause_us > 0) ::usleep(static_cast<useconds_t>(life.options->pause_us));
  }
  return cairn::Status::Ok();
}

}  // namespace soak
