// A scheduler that ends in the middle of telling a record, when nothing else goes wrong any more, and
// stays away for long: what it has told anybody must reach everybody who lives without it.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace cairn::sim {

class World;

class LastWord {
 public:
  explicit LastWord(World& world);
  // A record of a job that runs is durable, and about to be told.
  void OnRecord();

 private:
  void Die();
  void Compare();

  World& world_;
  Random random_;
  bool struck_ = false;
};

}  // namespace cairn::sim
