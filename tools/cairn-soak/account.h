// A worker's account: how many updates it has submitted, how many were acknowledged and how long the
// slowest took, per life of the process and per stream, in a mapped file. The file outlives the process: a
// store to the mapping is in the page cache at once, so even kill -9 loses nothing.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cairn/status.h"

namespace soak {

enum Stream { kAsyncDense = 0, kAsyncSparse = 1, kSyncDense = 2, kSyncSparse = 3 };
inline constexpr int kStreams = 4;
inline constexpr const char* kStreamNames[kStreams] = {"async dense", "async sparse", "sync dense",
                                                       "sync sparse"};
inline constexpr uint32_t kMaxLives = 512;

struct Counts {
  uint64_t submitted = 0;     // set before the update is handed to the client
  uint64_t acknowledged = 0;  // set after the client has said that it is applied
  uint64_t longest_us = 0;    // from handing one over until it is acknowledged
};
struct AccountData {
  uint64_t magic = 0;
  uint32_t rank = 0;
  uint32_t lives = 0;
  std::array<std::array<Counts, kStreams>, kMaxLives> life = {};
};

class Account {
 public:
  // Opens or makes DIR/rank-R.account.
  static cairn::Result<std::unique_ptr<Account>> Open(const std::string& dir, uint32_t rank);
  ~Account();
  // Number of the life that begins now; an error if it has had `lives`, at most kMaxLives.
  cairn::Result<uint32_t> BeginLife(uint32_t lives);
  void Submitted(uint32_t life, Stream stream, uint64_t number);
  void Acknowledged(uint32_t life, Stream stream, uint64_t number, uint64_t took_us);
  const AccountData& data() const { return *data_; }

 private:
  explicit Account(AccountData* data) : data_(data) {}
  AccountData* data_;
};

// The accounts of every rank below `ranks` that has one; a copy.
cairn::Result<std::vector<AccountData>> ReadAccounts(const std::string& dir, uint32_t ranks);

}  // namespace soak
