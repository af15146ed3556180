// A call that is to be made later, by whoever gets it: std::function for what can only be moved,
// with room for a request's usual captures in itself. Larger ones lie in recycled memory.
#pragma once

#include <cstddef>
#include <functional>
#include <new>
#include <type_traits>
#include <utility>

#include "base/recycled.h"

namespace cairn {

template <class Signature>
class Call;

template <class Returned, class... Arguments>
class Call<Returned(Arguments...)> {
 public:
  Call() = default;
  Call(std::nullptr_t) {}  // NOLINT: as std::function does it
  template <class Fn>
    requires(!std::is_same_v<std::remove_cvref_t<Fn>, Call> &&
             std::is_invocable_r_v<Returned, std::decay_t<Fn>&, Arguments...>)
  Call(Fn&& fn) {  // NOLINT: as std::function does it
    using Held = std::decay_t<Fn>;
    if constexpr (kFits<Held>) {
      new (room_) Held(std::forward<Fn>(fn));
      how_ = &kInside<Held>;
    } else {
      static_assert(alignof(Held) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
      void* const block = TakeBlock(sizeof(Held));
      try {
        new (block) Held(std::forward<Fn>(fn));
      } catch (...) {
        GiveBlock(block, sizeof(Held));
        throw;
      }
      new (room_) void*(block);
      how_ = &kOutside<Held>;
    }
  }
  Call(Call&& other) noexcept { TakeFrom(other); }
  Call& operator=(Call&& other) noexcept {
    if (this != &other) {
      Forget();
      TakeFrom(other);
    }
    return *this;
  }
  ~Call() { Forget(); }

  explicit operator bool() const { return how_ != nullptr; }
  // Requires that there is one.
  Returned operator()(Arguments... arguments) {
    return how_->invoke(room_, std::forward<Arguments>(arguments)...);
  }

 private:
  static constexpr size_t kRoom = 56;
  struct How {
    Returned (*invoke)(std::byte* room, Arguments&&... arguments);
    void (*move)(std::byte* from, std::byte* to) noexcept;  // and destroys what is in `from`
    void (*destroy)(std::byte* room) noexcept;
  };
  template <class Held>
  static constexpr bool kFits =
      sizeof(Held) <= kRoom && alignof(Held) <= alignof(void*) && std::is_nothrow_move_constructible_v<Held>;

  template <class Held>
  static Held& In(std::byte* room) {
    return *std::launder(reinterpret_cast<Held*>(room));
  }
  template <class Held>
  static constexpr How kInside{[](std::byte* room, Arguments&&... arguments) -> Returned {
                                 return std::invoke(In<Held>(room), std::forward<Arguments>(arguments)...);
                               },
                               [](std::byte* from, std::byte* to) noexcept {
                                 new (to) Held(std::move(In<Held>(from)));
                                 In<Held>(from).~Held();
                               },
                               [](std::byte* room) noexcept { In<Held>(room).~Held(); }};
  template <class Held>
  static constexpr How kOutside{
      [](std::byte* room, Arguments&&... arguments) -> Returned {
        return std::invoke(*static_cast<Held*>(In<void*>(room)), std::forward<Arguments>(arguments)...);
      },
      [](std::byte* from, std::byte* to) noexcept { new (to) void*(In<void*>(from)); },
      [](std::byte* room) noexcept {
        auto* const held = static_cast<Held*>(In<void*>(room));
        held->~Held();
        GiveBlock(held, sizeof(Held));
      }};

  void TakeFrom(Call& other) noexcept {
    how_ = std::exchange(other.how_, nullptr);
    if (how_ != nullptr) how_->move(other.room_, room_);
  }
  void Forget() noexcept {
    if (const How* how = std::exchange(how_, nullptr)) how->destroy(room_);
  }

  const How* how_ = nullptr;
  alignas(void*) std::byte room_[kRoom];
};

}  // namespace cairn
