#include "job_wishes.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace cairn::tool {
namespace {

using Json = nlohmann::json;

std::string WishesOf(const std::string& job_path) { return job_path + ".wishes"; }

}  // namespace

Status WriteWishes(const std::string& job_path, const Wishes& wishes) {
  const std::string path = WishesOf(job_path), draft = path + "." + std::to_string(getpid());
  const Json json = {{"workers", wishes.workers}, {"stop", wishes.stop}};
  std::ofstream file(draft);
  file << json.dump() << "\n";
  file.close();
  if (file && std::rename(draft.c_str(), path.c_str()) == 0) return Status::Ok();
  const int error = errno;
  unlink(draft.c_str());
  return {Code::kIo, path + ": " + strerror(error)};
}

std::optional<Wishes> ReadWishes(const std::string& job_path) {
  const std::string path = WishesOf(job_path);
  struct stat found {};
  constexpr off_t kMaxBytes = 4096;
  if (lstat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_size > kMaxBytes) return std::nullopt;
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto workers = json.find("workers"), stop = json.find("stop");
  Wishes wishes;
  constexpr uint64_t kMaxWorkers = 65'535;
  if (workers != json.end() && workers->is_number_unsigned() && workers->get<uint64_t>() <= kMaxWorkers)
    wishes.workers = workers->get<uint32_t>();
  wishes.stop = stop != json.end() && stop->is_boolean() && stop->get<bool>();
  return wishes;
}

void RemoveWishes(const std::string& job_path) { unlink(WishesOf(job_path).c_str()); }

}  // namespace cairn::tool
