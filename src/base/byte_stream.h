// Plain values to bytes and back, little-endian as the machine is: what slots, their state and the
// scheduler's records are made of. A reader never reads past its end: once something does not fit,
// every later read gives zero and ok() says no.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace cairn {

class ByteWriter {
 public:
  template <class T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), p, p + sizeof value);
  }
  void PutRaw(std::span<const std::byte> bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  // With its length (64 bits, or what is named) in front.
  template <class Size = uint64_t>
  void PutBytes(std::span<const std::byte> bytes) {
    Put(static_cast<Size>(bytes.size()));
    PutRaw(bytes);
  }
  void PutText(std::string_view text) { PutBytes(std::as_bytes(std::span(text.data(), text.size()))); }
  // Room for `count` bytes, which the caller fills at once.
  std::byte* Extend(size_t count) {
    out_.resize(out_.size() + count);
    return out_.data() + out_.size() - count;
  }
  // So many bytes are about to be put: room for them is made once, not by doubling again and again.
  void Reserve(size_t count) {
    const size_t needed = out_.size() + count;
    if (needed > out_.capacity()) out_.reserve(needed < 2 * out_.size() ? 2 * out_.size() : needed);
  }
  size_t size() const { return out_.size(); }
  std::span<const std::byte> bytes() const { return out_; }
  std::vector<std::byte> Take() { return std::exchange(out_, {}); }

 private:
  std::vector<std::byte> out_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <class T>
  T Get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (auto bytes = Cut(sizeof value); bytes.size() == sizeof value)
      std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::span<const std::byte> GetRaw(uint64_t count) { return Cut(count); }
  template <class Size = uint64_t>
  std::span<const std::byte> GetBytes() {
    return Cut(Get<Size>());
  }
  std::string GetText() {
    const auto bytes = GetBytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // A count of things of at least `each` bytes: never more than can follow.
  template <class Size = uint64_t>
  uint64_t GetCount(size_t each) {
    const auto count = Get<Size>();
    if (count > rest_.size() / each) ok_ = false;
    return ok_ ? count : 0;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }
  size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> Cut(uint64_t size) {
    if (!ok_ || size > rest_.size()) {
      ok_ = false;
      return {};
    }
    auto bytes = rest_.first(size);
    rest_ = rest_.subspan(size);
    return bytes;
  }
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace cairn
