// Codes and their names, which are in logs and JSON; context in front of an error.
#include "cairn/status.h"

#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

TEST(Status, NamesOfCodesAreStable) {
  const char* const names[] = {
      "ok",          "invalid_argument",   "not_found",      "already_exists",  "not_finite",
      "unavailable", "deadline_exceeded",  "retired",        "outcome_unknown", "job_failed",
      "protocol",    "resource_exhausted", "hyper_mismatch", "cancelled",       "io",
      "internal"};
  for (uint8_t code = 0; code < std::size(names); ++code)
    EXPECT_EQ(CodeName(static_cast<Code>(code)), names[code]);
  EXPECT_EQ(CodeName(static_cast<Code>(std::size(names))), "unknown");
}

TEST(Status, ContextComesBeforeTheMessageOfAnError) {
  EXPECT_EQ(Status::Ok().With("reading"), Status::Ok());
  EXPECT_EQ(Status(Code::kIo, "no space").With("reading"), Status(Code::kIo, "reading: no space"));
  EXPECT_EQ(Status(Code::kIo, "no space").ToString(), "io: no space");
  EXPECT_EQ(Status::Ok().ToString(), "ok");
}

}  // namespace
}  // namespace cairn
