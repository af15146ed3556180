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
std::string FollowingOf(const std::string& job_path) { return job_path + ".following"; }

constexpr uint64_t kMaxWorkers = 65'535;

Status WriteWhole(const std::string& path, const Json& json) {
  const std::string draft = path + "." + std::to_string(getpid());
  std::ofstream file(draft);
  file << json.dump() << "\n";
  file.close();
  if (file && std::rename(draft.c_str(), path.c_str()) == 0) return Status::Ok();
  const int error = errno;
  unlink(draft.c_str());
  return {Code::kIo, path + ": " + strerror(error)};
}

std::optional<Json> ReadObject(const std::string& path) {
  struct stat found{};
  constexpr off_t kMaxBytes = 1024 * 1024;
  if (lstat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_size > kMaxBytes)
    return std::nullopt;
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  return json;
}

uint32_t WorkersIn(const Json& json) {
  const auto workers = json.find("workers");
  const bool known =
      workers != json.end() && workers->is_number_unsigned() && workers->get<uint64_t>() <= kMaxWorkers;
  return known ? workers->get<uint32_t>() : 0;
}

}  // namespace

Status WriteWishes(const std::string& job_path, const Wishes& wishes) {
  return WriteWhole(WishesOf(job_path), {{"workers", wishes.workers}, {"stop", wishes.stop}});
}

std::optional<Wishes> ReadWishes(const std::string& job_path) {
  const std::optional<Json> json = ReadObject(WishesOf(job_path));
  if (!json) return std::nullopt;
  const auto stop = json->find("stop");
  return Wishes{WorkersIn(*json), stop != json->end() && stop->is_boolean() && stop->get<bool>()};
}

Status WriteFollowing(const std::string& job_path, const Following& following) {
  return WriteWhole(FollowingOf(job_path), {{"workers", following.workers}, {"called", following.called}});
}

std::optional<Following> ReadFollowing(const std::string& job_path) {
  const std::optional<Json> json = ReadObject(FollowingOf(job_path));
  if (!json) return std::nullopt;
  Following following{WorkersIn(*json), {}};
  const auto called = json->find("called");
  if (called == json->end() || !called->is_array()) return following;
  for (const Json& rank : *called)
    if (rank.is_number_unsigned() && rank.get<uint64_t>() <= kMaxWorkers)
      following.called.insert(rank.get<uint32_t>());
  return following;
}

void RemoveWishes(const std::string& job_path) {
  unlink(WishesOf(job_path).c_str());
  unlink(FollowingOf(job_path).c_str());
}

}  // namespace cairn::tool
