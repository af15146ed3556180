#include "worker.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "ledger.h"
#include "streams.h"

namespace soak {
namespace {

// Compares every place that a stream of one life wrote to.
cairn::Status CheckStream(const Life& life, const AccountData& account, uint32_t number, Stream stream,
                          Verdict* verdict) {
  const Counts& counts = account.life[number][stream];
  if (counts.submitted == 0) return cairn::Status::Ok();
  const bool sync = stream == kSyncDense || stream == kSyncSparse;
  std::vector<int64_t> content;
  if (stream == kAsyncSparse || stream == kSyncSparse) {
    auto table = OpenSparse(*life.client, sync);
    if (!table.ok()) return table.status();
    const auto keys = KeysOf(account.rank, number, life.options->keys);
    content.resize(keys.size() * 4);
    if (auto s = table->Pull(keys, std::span<int64_t>(content)).Wait(); !s.ok()) return s;
  } else {
    auto table = sync ? OpenSyncDense(*life.client, *life.options, life.world)
                      : OpenAsyncDense(*life.client, *life.options, account.rank, number);
    if (!table.ok()) return table.status();
    content.resize(table->size());
    if (auto s = table->Pull(std::span<int64_t>(content)).Wait(); !s.ok()) return s;
    if (sync) {
      const auto begin =
          content.begin() + static_cast<std::ptrdiff_t>(RegionOf(*life.options, account.rank, number));
      content = std::vector<int64_t>(begin, begin + life.options->region);
    }
  }
  verdict->acknowledged += counts.acknowledged;
  const std::string name = std::string(kStreamNames[stream]) + ", rank " + std::to_string(account.rank) +
                           ", life " + std::to_string(number);
  const Prefix prefix(counts.submitted);
  for (size_t at = 0; at < content.size(); at += 4)
    prefix.Check(std::span<const int64_t>(content).subspan(at, 4), counts, name, verdict);
  return cairn::Status::Ok();
}

// The slowest update of a rank or of all, of one kind.
double LongestMs(const AccountData& account, bool sync) {
  uint64_t longest_us = 0;
  for (uint32_t number = 0; number < account.lives; ++number) {
    for (const Stream stream :
         sync ? std::array{kSyncDense, kSyncSparse} : std::array{kAsyncDense, kAsyncSparse})
      longest_us = std::max(longest_us, account.life[number][stream].longest_us);
  }
  return static_cast<double>(longest_us) / 1000.0;
}

void PrintPauses(const std::vector<AccountData>& accounts) {
  double async_ms = 0, sync_ms = 0;
  for (const AccountData& account : accounts) {
    const double async_here_ms = LongestMs(account, false), sync_here_ms = LongestMs(account, true);
    std::printf("rank %u: longest push async %.1f ms, sync %.1f ms\n", account.rank, async_here_ms,
                sync_here_ms);
    async_ms = std::max(async_ms, async_here_ms);
    sync_ms = std::max(sync_ms, sync_here_ms);
  }
  std::printf("longest push: async %.1f ms, sync %.1f ms\n", async_ms, sync_ms);
}

cairn::Status CheckAll(const Life& life) {
  auto accounts = ReadAccounts(life.options->dir, life.world);
  if (!accounts.ok()) return accounts.status();
  Verdict verdict;
  uint32_t lives = 0;
  for (const AccountData& account : *accounts) {
    for (uint32_t number = 0; number < account.lives; ++number, ++lives)
      for (int stream = 0; stream < kStreams; ++stream)
        if (auto s = CheckStream(life, account, number, static_cast<Stream>(stream), &verdict); !s.ok())
          return s;
  }
  if (auto s = CheckBallast(life, &verdict); !s.ok()) return s;
  for (const std::string& finding : verdict.findings) std::printf("%s\n", finding.c_str());
  std::printf("workers: %zu  lives: %u\n", accounts->size(), lives);
  PrintPauses(*accounts);
  std::printf("acknowledged: %llu  lost: %llu  twice: %llu\n",
              static_cast<unsigned long long>(verdict.acknowledged),
              static_cast<unsigned long long>(verdict.lost), static_cast<unsigned long long>(verdict.twice));
  std::fflush(stdout);
  if (verdict.lost != 0 || verdict.twice != 0)
    return {cairn::Code::kInternal, "the servers' content does not match what was acknowledged"};
  return cairn::Status::Ok();
}

}  // namespace

cairn::Status RunLife(const Options& options, const cairn::ClientOptions& client_options) {
  auto connected = cairn::Client::Connect(client_options);
  if (!connected.ok()) return connected.status();
  cairn::Client& client = **connected;
  auto account = Account::Open(options.dir, client.rank());
  if (!account.ok()) return account.status();
  auto number = (*account)->BeginLife(options.lives);
  if (!number.ok()) return number.status();
  const Life life{&options, &client, account->get(), client.rank(), *number, client.world_size()};
  if (life.rank >= life.world)
    return {cairn::Code::kInvalidArgument, "cairn-soak does not take more workers than the job began with"};
  if (auto s = FillBallast(life); !s.ok()) return s;
  if (options.async)
    if (auto s = RunAsync(life); !s.ok()) return s;
  if (options.sync)
    if (auto s = RunSync(life); !s.ok()) return s;
  if (auto s = client.Barrier(); !s.ok()) return s;  // every live worker's updates are in
  if (client.rank() == 0)
    if (auto s = CheckAll(life); !s.ok()) return s;
  return client.Finish();
}

}  // namespace soak
