// error.h: the exceptions that the library throws. It never prints, exits or aborts.
#pragma once

#include <stdexcept>
#include <string>

namespace checkvalve {

// Base of every exception below. what() is one sentence: the argument, its value, what is accepted, and the fix.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An argument is wrong: shape, dtype, range, a name that does not exist. The call did nothing.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

// The arguments are right but no backend (or not the one that was forced) can serve them. what() lists every reason.
class Unsupported : public Error {
 public:
  using Error::Error;
};

// A file cannot be read, is malformed, or cannot be written. what() names the path.
class IoError : public Error {
 public:
  using Error::Error;
};

}  // namespace checkvalve
