// Status and Result<T>: how every call of Cairn reports what went wrong.
// A code exists only where some caller acts on it; the message says what happened, to what, and
// what to do. Thread-compatible values, no globals.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace cairn {

// Values travel on the wire: explicit and never reused.
enum class Code : uint8_t {
  kOk = 0,
  kInvalidArgument = 1,     // a user's mistake: wrong shape, wrong option; do not retry
  kNotFound = 2,            // unknown table, rank or file
  kAlreadyExists = 3,       // the same name with a different spec
  kNotFinite = 4,           // NaN or Inf in a push to a table with policy `reject`
  kUnavailable = 5,         // a node can't be reached (yet); retrying may help
  kDeadlineExceeded = 6,    // the call's deadline passed; the message names who is missing
  kRetired = 7,             // this incarnation was declared dead; restart the process
  kOutcomeUnknown = 8,      // an unacknowledged push may or may not have been applied
  kJobFailed = 9,           // the job has ended with an error; the message names the cause
  kProtocol = 10,           // bytes that are not a valid frame, or another protocol version
  kResourceExhausted = 11,  // a named bound was reached
  kHyperMismatch = 12,      // workers of one sync round gave different hyper-parameters
  kCancelled = 13,          // the client was closed while the call was under way
  kIo = 14,                 // a file or socket operation failed
  kInternal = 15,           // a bug of ours
};

// Stable lower-case name of a code ("not_found"), for logs and JSON.
std::string_view CodeName(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  static Status Ok() { return {}; }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // "not_found: no table named "user_emb": create it first"
  std::string ToString() const;
  // The same error with context put in front of its message: "context: message".
  Status With(std::string_view context) const;

  bool operator==(const Status&) const = default;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// Prints the error and aborts: someone took the value of a Result that has none.
[[noreturn]] void ResultHasNoValue(const Status& error);

// A value, or the error that prevented it. Look at ok() before value(): without one, value() ends
// the process with the error's text.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}                                // NOLINT: implicit
  Result(Status error) : status_(std::move(error)) { assert(!status_.ok()); }  // NOLINT: implicit
  Result(Code code, std::string message) : status_(code, std::move(message)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    Require();
    return *value_;
  }
  const T& value() const& {
    Require();
    return *value_;
  }
  T&& value() && {
    Require();
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void Require() const {
    if (!ok()) ResultHasNoValue(status_);
  }
  std::optional<T> value_;
  Status status_;
};

}  // namespace cairn
