#include "base/random.h"

#include <random>

namespace cairn {

uint64_t RandomNumber() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace cairn
