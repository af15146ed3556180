#include <cairn/status.h>

#include <cstdio>
#include <cstdlib>

namespace cairn {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kInvalidArgument: return "invalid_argument";
    case Code::kNotFound: return "not_found";
    case Code::kAlreadyExists: return "already_exists";
    case Code::kNotFinite: return "not_finite";
    case Code::kUnavailable: return "unavailable";
    case Code::kDeadlineExceeded: return "deadline_exceeded";
    case Code::kRetired: return "retired";
    case Code::kOutcomeUnknown: return "outcome_unknown";
    case Code::kJobFailed: return "job_failed";
    case Code::kProtocol: return "protocol";
    case Code::kResourceExhausted: return "resource_exhausted";
    case Code::kHyperMismatch: return "hyper_mismatch";
    case Code::kCancelled: return "cancelled";
    case Code::kIo: return "io";
    case Code::kInternal: return "internal";
  }
  return "unknown";
}

void ResultHasNoValue(const Status& error) {
  std::fprintf(stderr, "cairn: %s\n", error.ToString().c_str());
  std::abort();
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  return std::string(CodeName(code_)) + ": " + message_;
}

Status Status::With(std::string_view context) const {
  if (ok()) return *this;
  return {code_, std::string(context) + ": " + message_};
}

}  // namespace cairn
