// A process of its own for a test that kills, stops or changes the user of one end.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace cairn::transport {

// `body` hears from the test and tells it through two pipes. Made before the
// threads of a test are.
class Child {
 public:
  using Body = std::function<void(int in, int out)>;
  explicit Child(const Body& body) {
    int from[2], to[2];
    EXPECT_EQ(pipe2(from, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(to, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      alarm(60);  // it never outlives the test for long
      close(from[0]);
      close(to[1]);
      body(to[0], from[1]);
      _exit(0);
    }
    close(from[1]);
    close(to[0]);
    from_ = from[0];
    to_ = to[1];
  }
  ~Child() {
    kill(pid_, SIGKILL);
    kill(pid_, SIGCONT);
    int status = 0;
    if (!waited_) waitpid(pid_, &status, 0);
    close(from_);
    close(to_);
  }
  template <class T>
  T Hear() {
    T value{};
    EXPECT_EQ(read(from_, &value, sizeof value), static_cast<ssize_t>(sizeof value));
    return value;
  }
  template <class T>
  void Tell(const T& value) {
    EXPECT_EQ(write(to_, &value, sizeof value), static_cast<ssize_t>(sizeof value));
  }
  void Kill() {
    kill(pid_, SIGKILL);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    waited_ = true;
  }
  void Stop() {
    kill(pid_, SIGSTOP);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  void GoOn() { kill(pid_, SIGCONT); }

 private:
  pid_t pid_ = -1;
  int from_ = -1, to_ = -1;
  bool waited_ = false;
};

// In the child.
template <class T>
T Hear(int in) {
  T value{};
  if (read(in, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) _exit(1);
  return value;
}
template <class T>
void Tell(int out, const T& value) {
  if (write(out, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) _exit(1);
}

}  // namespace cairn::transport
