// Four floats or two 64-bit integers at a time, by the compiler's own vector types: lane by lane
// the same IEEE operations as the scalar code, on every instruction set. Elements need only the
// alignment of their type, and arrays may have any length: the rest is done one by one.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace cairn::optimizer {

template <class T>
struct LanesOf {
  static constexpr size_t kCount = 16 / sizeof(T);
  typedef T Type __attribute__((vector_size(16)));
  // The same in memory: at any element's address, whatever type the bytes had before.
  typedef T Stored __attribute__((vector_size(16), aligned(alignof(T)), may_alias));
};

template <class T>
typename LanesOf<T>::Type Load(const T* p) {
  return *reinterpret_cast<const typename LanesOf<T>::Stored*>(p);
}
template <class T>
void Store(T* p, typename LanesOf<T>::Type lanes) {
  *reinterpret_cast<typename LanesOf<T>::Stored*>(p) = lanes;
}

// The square root, rounded as IEEE says.
inline float Root(float value) { return std::sqrt(value); }
inline LanesOf<float>::Type Root(LanesOf<float>::Type value) {
#if defined(__SSE2__)
  return (LanesOf<float>::Type)_mm_sqrt_ps((__m128)value);
#else
  for (size_t i = 0; i < LanesOf<float>::kCount; ++i) value[i] = std::sqrt(value[i]);
  return value;
#endif
}

// w[i] = op(w[i], g[i]) for all i. `op` takes lanes or single elements. No overlap.
template <class T, class Op>
inline void ForLanes(T* __restrict w, const T* __restrict g, size_t n, Op op) {
  constexpr size_t k = LanesOf<T>::kCount;
  size_t i = 0;
  for (; i + 4 * k <= n; i += 4 * k) {
    const auto r0 = op(Load(w + i), Load(g + i));
    const auto r1 = op(Load(w + i + k), Load(g + i + k));
    const auto r2 = op(Load(w + i + 2 * k), Load(g + i + 2 * k));
    const auto r3 = op(Load(w + i + 3 * k), Load(g + i + 3 * k));
    Store(w + i, r0);
    Store(w + i + k, r1);
    Store(w + i + 2 * k, r2);
    Store(w + i + 3 * k, r3);
  }
  for (; i + k <= n; i += k) Store(w + i, op(Load(w + i), Load(g + i)));
  for (; i < n; ++i) w[i] = op(w[i], g[i]);
}

// A place in several arrays of floats at once, four elements wide or one.
struct WidePlace {
  size_t i;
  LanesOf<float>::Type Get(const float* array) const { return Load(array + i); }
  void Put(float* array, LanesOf<float>::Type value) const { Store(array + i, value); }
};
struct SinglePlace {
  size_t i;
  float Get(const float* array) const { return array[i]; }
  void Put(float* array, float value) const { array[i] = value; }
};

// work(place) for all elements: for loops over more arrays than ForLanes has.
template <class Work>
inline void ForPlaces(size_t n, Work work) {
  size_t i = 0;
  for (; i + LanesOf<float>::kCount <= n; i += LanesOf<float>::kCount) work(WidePlace{i});
  for (; i < n; ++i) work(SinglePlace{i});
}

}  // namespace cairn::optimizer
