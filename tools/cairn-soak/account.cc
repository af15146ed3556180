#include "account.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace soak {
namespace {
constexpr uint64_t kMagic = 0x324B414F53'4E5243ull;

std::string Path(const std::string& dir, uint32_t rank) {
  return dir + "/rank-" + std::to_string(rank) + ".account";
}

cairn::Status Errno(const std::string& what) {
  return {cairn::Code::kIo, what + ": " + std::strerror(errno)};
}
}  // namespace

cairn::Result<std::unique_ptr<Account>> Account::Open(const std::string& dir, uint32_t rank) {
  const std::string path = Path(dir, rank);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return Errno(path);
  if (::ftruncate(fd, sizeof(AccountData)) != 0) {
    const cairn::Status error = Errno(path);
    ::close(fd);
    return error;
  }
  void* memory = ::mmap(nullptr, sizeof(AccountData), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED) return Errno(path);
  auto* data = static_cast<AccountData*>(memory);
  if (data->magic == 0) {
    data->rank = rank;
    data->magic = kMagic;
  } else if (data->magic != kMagic || data->rank != rank) {
    ::munmap(memory, sizeof(AccountData));
    return {cairn::Code::kInvalidArgument,
            path + " is not an account of rank " + std::to_string(rank) + ": choose an empty --dir"};
  }
  return std::unique_ptr<Account>(new Account(data));
}

Account::~Account() { ::munmap(data_, sizeof(AccountData)); }

cairn::Result<uint32_t> Account::BeginLife(uint32_t lives) {
  if (data_->lives >= std::min(lives, kMaxLives)) {
    return {cairn::Code::kResourceExhausted,
            "this rank has used up its " + std::to_string(data_->lives) + " lives (--lives)"};
  }
  return data_->lives++;
}

// Atomic stores, so that a kill between two of them leaves a state that was true at some moment.
void Account::Submitted(uint32_t life, Stream stream, uint64_t number) {
  std::atomic_ref(data_->life[life][stream].submitted).store(number);
}
void Account::Acknowledged(uint32_t life, Stream stream, uint64_t number, uint64_t took_us) {
  Counts& counts = data_->life[life][stream];
  if (took_us > counts.longest_us) std::atomic_ref(counts.longest_us).store(took_us);
  std::atomic_ref(counts.acknowledged).store(number);
}

cairn::Result<std::vector<AccountData>> ReadAccounts(const std::string& dir, uint32_t ranks) {
  std::vector<AccountData> accounts;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    std::ifstream file(Path(dir, rank), std::ios::binary);
    if (!file) continue;  // a rank that never started
    AccountData data;
    if (!file.read(reinterpret_cast<char*>(&data), sizeof data) || data.magic != kMagic || data.rank != rank)
      return {cairn::Code::kInvalidArgument, Path(dir, rank) + " is damaged"};
    accounts.push_back(data);
  }
  return accounts;
}

}  // namespace soak
