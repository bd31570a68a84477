// io_files_test.cpp: what can be opened, and that an output file appears complete or not at all.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <vector>

#include "io/npy.h"
#include "io/output_file.h"
#include "io/safetensors.h"
#include "io_support.h"

namespace checkvalve::io::testing {
namespace {

using ::testing::ElementsAre;

const std::vector<float> kZeros(65536);

ConstTensorView zeros() { return make_dense(kZeros.data(), DType::kFloat32, 1, {static_cast<int>(kZeros.size())}); }

// Limits the size of files that this process may write, which fails a write as a full disk does, root's too.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t limit) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit lowered{limit, before_.rlim_max};
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &lowered);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST(Files, OnlyRegularFilesWithContentAreRead) {
  const TemporaryFolder folder;
  write_text(folder / "empty", "");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const std::pair<fs::path, std::string_view> cases[] = {
      {folder / "empty", "the file is empty"},
      {folder / "absent", "No such file or directory"},
      {folder.path(), "is a directory"},
      {folder / "pipe", "is not a regular file"},
      {folder / "empty" / "below", "Not a directory"},
      {"/dev/null", "is not a regular file"},
  };
  for (const auto& entry : cases) {
    const auto& path = entry.first;
    const auto& phrase = entry.second;
    SCOPED_TRACE(path.string());
    expect_error<IoError>([&] { static_cast<void>(SafetensorsFile::open(path)); }, {path.string(), phrase});
    expect_error<IoError>([&] { static_cast<void>(NpyFile::open(path)); }, {path.string(), phrase});
  }
}

TEST(Files, ErrorsOfAnOpenedFileNameItsPath) {
  const TemporaryFolder folder;
  write_text(folder / "text", "neither of the two formats");
  expect_error<IoError>([&] { static_cast<void>(SafetensorsFile::open(folder / "text")); },
                        {(folder / "text").string() + ": "});
  expect_error<IoError>([&] { static_cast<void>(NpyFile::open(folder / "text")); },
                        {(folder / "text").string() + ": "});
}

TEST(Files, ATargetThatCannotBeWrittenLeavesNothingBehind) {
  const TemporaryFolder folder;
  write_text(folder / "file", "kept");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const std::pair<fs::path, std::string_view> cases[] = {
      {folder / "absent" / "out", "No such file or directory"},
      {folder / "file" / "out", "Not a directory"},
      {folder.path(), "is a directory"},
      {folder.path() / "", "does not name a file"},
      {folder / "pipe", "is not a regular file"},
      {"", "does not name a file"},
  };
  for (const auto& entry : cases) {
    const auto& path = entry.first;
    const auto& phrase = entry.second;
    SCOPED_TRACE(path.string());
    expect_error<IoError>([&] { write_npy(path, zeros()); }, {path.string(), phrase});
    expect_error<IoError>(
        [&] {
          write_safetensors(path, std::vector<NamedTensor>{{"z", zeros()}});
        },
        {path.string(), phrase});
  }
  EXPECT_THAT(folder.names(), ::testing::UnorderedElementsAre("file", "pipe"));
  EXPECT_EQ(read_text(folder / "file"), "kept");
}

TEST(Files, AFailedWriteRemovesTheTemporaryAndKeepsTheTarget) {
  const TemporaryFolder folder;
  write_text(folder / "out", "kept");
  {
    const FileSizeLimit limit(4096);
    expect_error<IoError>([&] { write_npy(folder / "out", zeros()); }, {"out: cannot be written: File too large"});
    expect_error<IoError>(
        [&] {
          write_safetensors(folder / "out", std::vector<NamedTensor>{{"z", zeros()}});
        },
        {"out: cannot be written: File too large"});
    expect_error<IoError>([&] { write_npy(folder / "new", zeros()); }, {"File too large"});
  }
  EXPECT_THAT(folder.names(), ElementsAre("out"));
  EXPECT_EQ(read_text(folder / "out"), "kept");
  write_npy(folder / "out", zeros());
  EXPECT_EQ(NpyFile::open(folder / "out").tensor().numel(), zeros().numel());
}

TEST(Files, NothingAppearsBeforeCommit) {
  const TemporaryFolder folder;
  write_text(folder / "out", "old");
  {
    OutputFile abandoned(folder / "out");
    abandoned.write("new");
    EXPECT_EQ(read_text(folder / "out"), "old");
    EXPECT_EQ(folder.names().size(), 2U);
  }
  EXPECT_THAT(folder.names(), ElementsAre("out"));
  EXPECT_EQ(read_text(folder / "out"), "old");

  OutputFile first(folder / "out");
  OutputFile second(folder / "out");
  first.write("first");
  second.write("second");
  second.commit();
  EXPECT_EQ(read_text(folder / "out"), "second");
  first.commit();
  EXPECT_EQ(read_text(folder / "out"), "first");
  EXPECT_THAT(folder.names(), ElementsAre("out"));
}

TEST(Files, AnExistingTargetPassesOnItsPermissionsAndItsLink) {
  const TemporaryFolder folder;
  write_text(folder / "real", "old");
  fs::permissions(folder / "real", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("real", folder / "link");
  OutputFile file(folder / "link");
  file.write("new");
  file.commit();
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_text(folder / "real"), "new");
  EXPECT_EQ(fs::status(folder / "real").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST(Files, AReaderKeepsItsDataWhenTheFileIsReplaced) {
  const TemporaryFolder folder;
  const float one = 1;
  const float two = 2;
  write_npy(folder / "x", make_dense(&one, DType::kFloat32, 1, {1}));
  const auto file = NpyFile::open(folder / "x");
  write_npy(folder / "x", make_dense(&two, DType::kFloat32, 1, {1}));
  EXPECT_EQ(*static_cast<const float*>(file.tensor().data), one);
  EXPECT_EQ(*static_cast<const float*>(NpyFile::open(folder / "x").tensor().data), two);
}

}  // namespace
}  // namespace checkvalve::io::testing
