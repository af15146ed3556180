#include "raising.h"

#include <nanobind/nanobind.h>

#include <array>

namespace cairn::python {
namespace nb = nanobind;
namespace {

const char* ExceptionName(Code code) {
  switch (code) {
    case Code::kInvalidArgument: return "InvalidArgumentError";
    case Code::kNotFound: return "NotFoundError";
    case Code::kAlreadyExists: return "AlreadyExistsError";
    case Code::kNotFinite: return "NotFiniteError";
    case Code::kUnavailable: return "UnavailableError";
    case Code::kDeadlineExceeded: return "DeadlineExceededError";
    case Code::kRetired: return "RetiredError";
    case Code::kOutcomeUnknown: return "OutcomeUnknownError";
    case Code::kJobFailed: return "JobFailedError";
    case Code::kProtocol: return "ProtocolError";
    case Code::kResourceExhausted: return "ResourceExhaustedError";
    case Code::kHyperMismatch: return "HyperMismatchError";
    case Code::kCancelled: return "CancelledError";
    case Code::kIo: return "IoError";
    case Code::kInternal: return "InternalError";
    case Code::kOk: break;
  }
  return "InternalError";
}

// cairn.errors; kept for the life of the process.
nb::handle ErrorsModule() {
  static const nb::handle module = nb::module_::import_("cairn.errors").release();
  return module;
}

}  // namespace

void RaiseNamed(const char* name, const std::string& message) {
  const nb::object type = ErrorsModule().attr(name);
  const nb::object text =
      nb::steal(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
  PyErr_SetObject(type.ptr(), text.ptr());
  throw nb::python_error();
}

void RaiseStatus(const Status& status) { RaiseNamed(ExceptionName(status.code()), status.message()); }

}  // namespace cairn::python
