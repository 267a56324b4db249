#pragma once

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "haul/error.h"

namespace haul::test {

// Runs `call` and checks that it throws Error of this kind with a message that matches.
template <typename Call>
void expect_error(ErrorKind kind, const testing::Matcher<const std::string&>& message, Call call) {
  try {
    call();
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.what();
    EXPECT_THAT(std::string(error.what()), message);
  }
}

}  // namespace haul::test
