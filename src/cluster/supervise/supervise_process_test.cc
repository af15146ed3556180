// Real children, short-lived: what the launcher relies on.
#include "cluster/supervise/supervise_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "cluster/supervise/supervise_log.h"

namespace cairn::cluster {
namespace {

std::string ReadAll(int fd) {
  std::string out;
  char piece[4096];
  while (true) {
    pollfd wait{fd, POLLIN, 0};
    if (poll(&wait, 1, 20'000) != 1) return out + "<nothing came>";
    const ssize_t got = read(fd, piece, sizeof piece);
    if (got <= 0) return out;
    out.append(piece, static_cast<size_t>(got));
  }
}

TEST(StartChild, OutputAndErrorComeThroughOnePipeInOrder) {
  Result<Child> child = StartChild({.command = {"sh", "-c", "echo one; echo two >&2; echo $NAME; exit 3"},
                                    .environment = {"NAME=three", "PATH=/usr/bin:/bin"}});
  ASSERT_TRUE(child.ok()) << child.status().ToString();
  EXPECT_EQ(ReadAll(child->output_fd), "one\ntwo\nthree\n");
  int status = 0;
  ASSERT_EQ(waitpid(child->pid, &status, 0), child->pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3);
  close(child->output_fd);
}

TEST(StartChild, AMissingProgramIsAnErrorThatNamesIt) {
  const Result<Child> child = StartChild({.command = {"/no/such/program"}, .environment = {}});
  ASSERT_FALSE(child.ok());
  EXPECT_EQ(child.status().message(), "/no/such/program: No such file or directory");
}

TEST(StartChild, EachIsItsOwnProcessGroupAndHasNoInput) {
  Result<Child> child = StartChild(
      {.command = {"sh", "-c", "cat; echo ready; sleep 1000 & wait"}, .environment = {"PATH=/usr/bin:/bin"}});
  ASSERT_TRUE(child.ok());
  pollfd wait{child->output_fd, POLLIN, 0};
  ASSERT_EQ(poll(&wait, 1, 20'000), 1);
  EXPECT_EQ(getpgid(child->pid), child->pid);
  ASSERT_EQ(kill(-child->pid, SIGKILL), 0);  // the sleep too, or the pipe would stay open
  EXPECT_EQ(ReadAll(child->output_fd), "ready\n");
  waitpid(child->pid, nullptr, 0);
  close(child->output_fd);
}

TEST(StartChild, DiesWithTheProcessThatStartedIt) {
  int alive[2];
  ASSERT_EQ(pipe2(alive, O_CLOEXEC), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    // The child keeps the write end; when it is gone too, the test reads the end of the pipe.
    const Result<Child> child = StartChild(
        {.command = {"sleep", "1000"}, .environment = {"PATH=/usr/bin:/bin"}, .keep_fd = alive[1]});
    _exit(child.ok() ? 0 : 1);
  }
  close(alive[1]);
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(ReadAll(alive[0]), "");
  close(alive[0]);
}

TEST(OutputLines, PiecesBecomeWholeLines) {
  std::vector<std::string> lines;
  OutputLines output([&lines](std::string_view line) { lines.emplace_back(line); });
  output.Feed("a");
  output.Feed("b\r\n\ncd");
  EXPECT_EQ(lines, (std::vector<std::string>{"ab", ""}));
  output.Flush();
  output.Flush();
  EXPECT_EQ(lines, (std::vector<std::string>{"ab", "", "cd"}));
}

TEST(OutputLines, LinesWithoutEndAreCutAndTheTailIsBounded) {
  size_t count = 0, bytes = 0;
  OutputLines output([&](std::string_view line) { ++count, bytes += line.size(); });
  output.Feed(std::string(3 * OutputLines::kMaxLineBytes, 'x'));
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(bytes, 3 * OutputLines::kMaxLineBytes);
  for (int i = 0; i < 100; ++i) output.Feed(std::to_string(i) + "\n");
  ASSERT_EQ(output.ending().lines.size(), OutputLines::kTailLines);
  EXPECT_EQ(output.ending().lines.back(), "99");
  EXPECT_FALSE(output.ending().traceback);
}

// What is shown of the output at the end of a failed job.
std::vector<std::string> EndingOf(const std::string& text) {
  OutputLines output([](std::string_view) {});
  output.Feed(text);
  output.Flush();
  return output.ending().lines;
}

TEST(OutputLines, ATracebackIsShownWhole) {
  std::string frames;
  for (int i = 0; i < 40; ++i)
    frames += "  File \"train.py\", line " + std::to_string(i) + ", in f\n    f()\n";
  const std::vector<std::string> lines =
      EndingOf("loss 1\nloss 2\nTraceback (most recent call last):\n" + frames + "ValueError: bad\n");
  ASSERT_EQ(lines.size(), 82u);
  EXPECT_EQ(lines.front(), "Traceback (most recent call last):");
  EXPECT_EQ(lines.back(), "ValueError: bad");
}

TEST(OutputLines, ATracebackComesWithTheOnesThatLedToIt) {
  const std::vector<std::string> lines = EndingOf(
      "x\nTraceback (most recent call last):\n  File \"a\"\nKeyError: 1\n\nDuring handling of the above "
      "exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"b\"\n"
      "ValueError: 2\n");
  ASSERT_EQ(lines.size(), 9u);
  EXPECT_EQ(lines[2], "KeyError: 1");
}

TEST(OutputLines, TorchsPrefixIsNoIndent) {
  const std::vector<std::string> lines =
      EndingOf("[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a\"\n[rank1]: KeyError: 1\n");
  ASSERT_EQ(lines.size(), 3u);
}

TEST(OutputLines, ATracebackThatTheProgramSurvivedIsNotItsEnd) {
  std::string later;
  for (int i = 0; i < 20; ++i) later += "loss " + std::to_string(i) + "\n";
  const std::vector<std::string> lines =
      EndingOf("Traceback (most recent call last):\n  File \"a\"\nKeyError: 1\n" + later);
  ASSERT_EQ(lines.size(), OutputLines::kTailLines);
  EXPECT_EQ(lines.front(), "loss 5");
}

}  // namespace
}  // namespace cairn::cluster
