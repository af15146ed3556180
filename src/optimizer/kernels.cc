// Compiled once for each instruction set (foreach_target.h includes this file again and again), and
// the choice between them. Highway's own choice is in a shared library, which a wheel can't count
// on, so it is made here; everything else of Highway is in its headers.
#include "optimizer/kernels.h"

// Instruction sets that have nothing for these loops that their neighbours lack, and those whose
// vectors have no fixed length.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// Instructions that these loops don't need: a processor may lack them, and what is not there can't
// be fused.
#define HWY_DISABLE_PCLMUL_AES
#define HWY_DISABLE_BMI2_FMA
#define HWY_DISABLE_F16C
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimizer/kernels.cc"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include "optimizer/span_kernels_inl.h"
#include "optimizer/update_kernels_inl.h"

HWY_BEFORE_NAMESPACE();
namespace cairn::optimizer::HWY_NAMESPACE {

const Kernels kKernels = {
    .name = &HWY_STR(HWY_NAMESPACE)[2],  // without "N_"
    .update = Update,
    .update_rows = UpdateRows,
    .update_narrow_rows = UpdateNarrowRows,
    .widen_rows = WidenRows,
    .replace = ReplaceArray,
    .stage_copy = StageCopyArray,
    .stage_add = StageAddArray,
    .stage_add_rows = StageAddRows,
    .sum_integers = SumIntegers,
    .all_below = AllBelowArray,
};

}  // namespace cairn::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn::optimizer {
namespace {

// What the compiler may use in the code of a target (HWY_TARGET_STR), of processor and system.
#if HWY_ARCH_X86
bool HasSse4() { return __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("sse4.2"); }
bool HasAvx2() { return HasSse4() && __builtin_cpu_supports("avx2"); }
bool HasAvx3() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
}
#endif

struct Found {
  Found() {
#if HWY_ARCH_X86
    __builtin_cpu_init();
    Add(HWY_CHOOSE_AVX3(kKernels), HasAvx3());
    Add(HWY_CHOOSE_AVX2(kKernels), HasAvx2());
    Add(HWY_CHOOSE_SSE4(kKernels), HasSse4());
#endif
    Add(HWY_CHOOSE_FALLBACK(kKernels), true);
  }
  void Add(const Kernels* kernels, bool supported) {
    if (kernels == nullptr || !supported) return;
    if (count > 0 && all[count - 1] == kernels) return;  // compiled for one machine alone
    all[count++] = kernels;
  }
  const Kernels* all[4] = {};
  size_t count = 0;
};
const Found& All() {
  static const Found found;
  return found;
}

}  // namespace

const Kernels& ChosenKernels() { return *All().all[0]; }
std::span<const Kernels* const> SupportedKernels() { return {All().all, All().count}; }

}  // namespace cairn::optimizer
#endif  // HWY_ONCE
