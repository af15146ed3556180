// The cluster state as it lies in the scheduler's log, at any alignment (a byte of the input says
// which; golden states are seeds as they are).
#include <vector>

#include "fuzz/frame_input.h"
#include "wire/control.h"

using namespace cairn;
using namespace cairn::wire;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const size_t shift = size == 0 ? 0 : data[size / 2] & 7;
  std::vector<std::byte> bytes(shift + size);
  if (size != 0) std::memcpy(bytes.data() + shift, data, size);
  const Result<ClusterState> state = DecodeState(std::span(bytes).subspan(shift));
  if (!state.ok()) return 0;
  const std::vector<std::byte> once = EncodeState(*state);
  const Result<ClusterState> again = DecodeState(once);
  FUZZ_EXPECT(again.ok());
  FUZZ_EXPECT(EncodeState(*again) == once);
  for (const WorkerInfo& worker : state->workers) {
    if (worker.join_view == ViewNumber{0}) continue;
    for (const TableInfo& table : state->tables) (void)FirstRound(*state, worker, table);
  }
  return 0;
}
