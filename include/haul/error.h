#pragma once

// The one exception that haul throws. Its message names the file, the tensor, what was expected
// and what was found; its hint, where there is one, says what to do about it.

#include <exception>
#include <string>
#include <string_view>

namespace haul {

enum class ErrorKind {
  kUsage,        // the caller asked for something that makes no sense
  kNotFound,     // a file, a model or a name that does not exist
  kCorrupt,      // input that breaks its format's rules
  kUnsupported,  // well-formed, but not something haul can do
  kResource,     // memory, disk, network or permission
  kInternal,     // a defect of haul
};

class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message, std::string hint = {});

  ErrorKind kind() const { return kind_; }
  // One line, outermost context first: "model.safetensors: tensor 'w': …". Control characters
  // of names in it are written as \xNN.
  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& hint() const { return hint_; }

  // Puts "where: " in front of the message, for a caller that knows more and rethrows.
  void add_context(std::string_view where);

 private:
  ErrorKind kind_;
  std::string message_;
  std::string hint_;
};

}  // namespace haul
