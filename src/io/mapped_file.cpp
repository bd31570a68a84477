// mapped_file.cpp: open, check and map a regular file.
#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "io/text.h"

namespace checkvalve::io {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

MappedFile MappedFile::open(const std::filesystem::path& path) {
  const std::string origin = path.string();
  // O_NONBLOCK: a named pipe is to be refused below, not waited for.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) fail_errno(origin, "cannot be opened for reading", errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_errno(origin, "cannot be examined", errno);
  if (S_ISDIR(status.st_mode)) fail(origin, "is a directory, not a file; name a file inside it");
  if (!S_ISREG(status.st_mode)) fail(origin, "is not a regular file; save the data to a file first");
  if (status.st_size == 0) fail(origin, "the file is empty; write it again");

  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) fail_errno(origin, "cannot be mapped into memory", errno);
  MappedFile mapped;
  mapped.bytes_ = {static_cast<const std::byte*>(address), size};
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace checkvalve::io
