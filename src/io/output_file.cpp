// output_file.cpp: temporary file, fsync, rename.
#include "io/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "io/text.h"

namespace checkvalve::io {
namespace {

namespace fs = std::filesystem;

// Not mkstemp: that would create the file with mode 0600 where the user's umask says otherwise. The name is short and
// independent of the target's, which may already be as long as the file system allows.
fs::path temporary_name(const fs::path& folder) {
  static std::atomic<unsigned> counter = 0;
  return folder / fmt::format(".checkvalve-{}-{}.tmp", ::getpid(), counter++);
}

}  // namespace

OutputFile::OutputFile(const fs::path& path) : origin_(path.string()), target_(path) {
  if (path.filename().empty()) fail(origin_, "does not name a file; add a file name");
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) fail(origin_, "is a directory, not a file; name a file inside it");
  if (fs::exists(status)) {
    if (!fs::is_regular_file(status)) fail(origin_, "is not a regular file and cannot be replaced; name another file");
    target_ = fs::canonical(path, error);
    if (error) fail_errno(origin_, "cannot be resolved", error.value());
  }

  do {
    temporary_ = temporary_name(target_.parent_path());
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EEXIST);
  if (fd_ < 0) fail_errno(origin_, "cannot be written, its folder must exist and be writable", errno);
  if (fs::exists(status)) ::fchmod(fd_, static_cast<mode_t>(status.permissions() & fs::perms::all));
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_errno(origin_, "cannot be written", errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void OutputFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void OutputFile::commit() {
  if (::fsync(fd_) != 0) fail_errno(origin_, "cannot be written to the disk", errno);
  // A network file system may report a failed write only here.
  if (::close(std::exchange(fd_, -1)) != 0) fail_errno(origin_, "cannot be written to the disk", errno);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_errno(origin_, "cannot be replaced", errno);
  temporary_.clear();
}

}  // namespace checkvalve::io
