// What only shared memory has: how peers find each other and fall back to TCP, peers that die or
// stop in the middle, lie in their counters or pass something else than memory, and wake-ups.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "contract/child_process.h"
#include "contract/peers.h"
#include "transport/shm/handshake.h"
#include "transport/shm/rendezvous.h"

namespace cairn::transport {
namespace {

constexpr PipeChoice kAuto{.kind = PipeKind::kAuto};
constexpr PipeChoice kTcp{.kind = PipeKind::kTcp};
constexpr PipeChoice kShm{.kind = PipeKind::kShm};

ListenerOptions Listening(const PipeChoice& pipe) { return {.pipe = pipe}; }
TcpNetworkOptions Talking(const PipeChoice& pipe) { return {.pipe = pipe}; }

size_t ShmConnections(Host& host) {
  return OnLoop(host.serving, [&] { return host.network->shm_connections(); });
}

// The other side lives and answers others.
void ExpectAlive(Host& host) {
  Caller caller(Talking(kShm));
  caller.Send(caller.Connect(host.endpoint()), EmptyFrame(77, caller.pool));
  EXPECT_EQ(caller.messages.Take().header.request_id, 77u);
}

bool Until(const std::function<bool()>& ready) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!ready()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

void HostInChild(int, int out) {
  Host host(EchoAll(), Listening(kShm), Talking(kShm));
  Tell(out, host.endpoint().port);
  while (true) pause();
}

TEST(ShmTransport, ItIsUsedByItselfWhereBothSidesHaveIt) {
  struct Case {
    PipeChoice listening, calling;
    size_t shm;
  };
  const Case cases[] = {
      {kAuto, kAuto, 1}, {kAuto, kTcp, 0}, {kTcp, kAuto, 0}, {kShm, kAuto, 1}, {kAuto, kShm, 1}};
  for (const Case& c : cases) {
    Host host(EchoAll(), Listening(c.listening));
    Caller caller(Talking(c.calling));
    caller.Send(caller.Connect(host.endpoint()), EmptyFrame(1, caller.pool));
    EXPECT_EQ(caller.messages.Take().header.request_id, 1u);
    EXPECT_EQ(OnLoop(caller.loop, [&] { return caller.network->shm_connections(); }), c.shm);
    EXPECT_EQ(ShmConnections(host), c.shm);
  }
  Host host(EchoAll(), Listening(kTcp));
  Caller caller(Talking(kShm));
  const ConnId conn = caller.Begin(host.endpoint());
  EXPECT_EQ(caller.gone.Take(), conn) << "shm: no TCP instead";
}

TEST(ShmTransport, WildcardsAndNamesAreFound) {
  for (const std::string listening : {"0.0.0.0", "::"}) {
    for (const std::string calling : {"127.0.0.1", "127.1.2.3", "localhost"}) {
      ListenerOptions options = Listening(kShm);
      options.host = listening;
      Host host(EchoAll(), options);
      Caller caller(Talking(kShm));
      caller.Send(caller.Connect({calling, host.endpoint().port}), EmptyFrame(1, caller.pool));
      EXPECT_EQ(caller.messages.Take().header.request_id, 1u) << listening << " " << calling;
    }
  }
  // Another server may have the same port on another address.
  ListenerOptions first = Listening(kShm), second = Listening(kShm);
  first.host = "127.0.0.2";
  Host a([](Host& h, ConnId c, wire::InFrame&) { h.network->Send(c, EmptyFrame(100, h.pool)); }, first);
  second.host = "127.0.0.3";
  second.port = a.endpoint().port;
  Host b([](Host& h, ConnId c, wire::InFrame&) { h.network->Send(c, EmptyFrame(200, h.pool)); }, second);
  const std::pair<std::string, uint64_t> answers[] = {{"127.0.0.2", 100}, {"127.0.0.3", 200}};
  for (const auto& [host, answer] : answers) {
    Caller caller(Talking(kShm));
    caller.Send(caller.Connect({host, a.endpoint().port}), EmptyFrame(1, caller.pool));
    EXPECT_EQ(caller.messages.Take().header.request_id, answer);
  }
}

TEST(ShmTransport, LargeFramesThroughSmallRingsBothWaysAtOnce) {
  PipeChoice small = kShm;
  small.ring_bytes = shm::kMinRingBytes;
  Host host(EchoAll(), Listening(small), Talking(small));
  Caller caller(Talking(small));
  const ConnId conn = caller.Connect(host.endpoint());
  caller.Send(conn, EmptyFrame(1, caller.pool));
  caller.messages.Take();
  constexpr size_t kBytes = 5'000'000;
  for (uint64_t id = 2; id <= 9; ++id) caller.Send(conn, ValuesFrame(id, kBytes, caller.pool));
  for (uint64_t id = 2; id <= 9; ++id) {
    const wire::InFrame back = caller.messages.Take();
    const wire::FramePtr sent = ValuesFrame(id, kBytes, caller.pool);
    EXPECT_EQ(back.header.request_id, id);
    EXPECT_EQ(back.header.checksum, sent->header().checksum);
    const auto values = back.body().last(kBytes);
    EXPECT_TRUE(std::equal(values.begin(), values.end(), sent->owned.data()));
  }
  EXPECT_GT(OnLoop(caller.loop, [&] { return caller.network->BulkProgress(conn); }), 30'000'000u);
}

// A host that waits asks to be woken, and wakes nobody who did not ask.
TEST(ShmTransport, AnIdleHostSleepsAndRingsOnlyForThoseWhoSleep) {
  Host host(EchoAll(), Listening(kShm), Talking(kShm));
  ShmPeer peer(host.endpoint());
  ASSERT_TRUE(peer.connected());
  BufferPool pool;
  const Buffer frame = wire::Flatten(*EmptyFrame(1, pool), pool);
  for (uint64_t round = 1; round <= 5; ++round) {
    EXPECT_TRUE(Until([&] { return peer.peer_wants_data().load() != 0; })) << "it does not go to sleep";
    peer.Send(frame.bytes());
    EXPECT_TRUE(Until([&] { return peer.peer_written().load() == round * frame.size(); }));
  }
  char bell;
  EXPECT_EQ(recv(peer.fd(), &bell, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  // Asleep, it is woken exactly once for two answers.
  peer.wants_data().store(1);
  peer.Send(frame.bytes());
  EXPECT_TRUE(Until([&] { return peer.peer_written().load() == 6 * frame.size(); }));
  peer.Send(frame.bytes());
  EXPECT_TRUE(Until([&] { return peer.peer_written().load() == 7 * frame.size(); }));
  char bells[8];
  EXPECT_TRUE(Until([&] { return recv(peer.fd(), bells, sizeof bells, MSG_DONTWAIT | MSG_PEEK) > 0; }));
  EXPECT_EQ(recv(peer.fd(), bells, sizeof bells, MSG_DONTWAIT), 1);
}

TEST(ShmTransport, CountersThatCannotBeEndOnlyThatConnection) {
  Host host(EchoAll(), Listening(kShm), Talking(kShm));
  BufferPool pool;
  const Buffer hello = wire::Flatten(*EmptyFrame(1, pool), pool);
  const std::vector<std::function<void(ShmPeer&)>> lies = {
      [](ShmPeer& p) { p.written().store(p.written().load() + p.ring_bytes() + 1); },
      [](ShmPeer& p) { p.written().store(0); },
      [](ShmPeer& p) { p.written().store(~uint64_t{0}); },
      [&](ShmPeer& p) {  // more taken than was written: seen with the next answer
        p.taken().store(uint64_t{1} << 40);
        p.Send(wire::Flatten(*ValuesFrame(2, 3'000'000, pool), pool).bytes());
      },
  };
  for (size_t i = 0; i < lies.size(); ++i) {
    ShmPeer peer(host.endpoint());
    ASSERT_TRUE(peer.connected());
    peer.Send(hello.bytes());
    EXPECT_EQ(peer.Read(hello.size()).size(), hello.size());
    lies[i](peer);
    peer.Wake();
    host.gone.Take();
    EXPECT_TRUE(peer.Closed()) << i;
  }
  ExpectAlive(host);
}

// Before and after the first frame: the listener's loop has the rings first.
TEST(ShmTransport, CountersThatCannotBeBeforeTheFirstFrame) {
  Host host(EchoAll(), Listening(kShm), Talking(kShm));
  ShmPeer peer(host.endpoint());
  peer.written().store(uint64_t{1} << 50);
  peer.Wake();
  EXPECT_TRUE(peer.Closed());
  ExpectAlive(host);
}

TEST(ShmTransport, WhateverAPeerPassesTheHostLives) {
  Host host(EchoAll(), Listening(kAuto), Talking(kAuto));
  const size_t ring = ShmPeer::Setup{}.ring_bytes;
  const auto attempt = [&](const ShmPeer::Setup& setup, const std::vector<int>& descriptors) {
    const int socket = ShmPeer::Dial(host.endpoint());
    EXPECT_GE(socket, 0);
    EXPECT_TRUE(ShmPeer::SendSetup(socket, setup, descriptors));
    ShmPeer::Setup theirs;
    const int got = ShmPeer::ReceiveSetup(socket, &theirs);
    EXPECT_EQ(got, -1);
    if (got >= 0) close(got);
    close(socket);
    for (int fd : descriptors) close(fd);
  };
  const auto sealed = [&](size_t bytes) {
    const int fd = ShmPeer::NewMemory(bytes);
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, ShmPeer::kSeals), 0);
    return fd;
  };
  attempt({}, {});
  attempt({}, {sealed(ring), sealed(ring)});
  attempt({}, {sealed(ring / 2)});
  attempt({}, {ShmPeer::NewMemory(ring)});  // could still shrink
  attempt({}, {open("/dev/zero", O_RDWR | O_CLOEXEC)});
  attempt({}, {open("/proc/self/exe", O_RDONLY | O_CLOEXEC)});
  std::vector<int> many;
  for (int i = 0; i < 30; ++i) many.push_back(sealed(4096));
  attempt({}, many);
  ShmPeer::Setup wrong;
  wrong.version = 2;
  attempt(wrong, {sealed(ring)});
  wrong = {};
  wrong.magic[0] = 'X';
  attempt(wrong, {sealed(ring)});
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{3} << 20, uint64_t{1} << 40, ~uint64_t{0}}) {
    wrong = {};
    wrong.ring_bytes = bytes;
    attempt(wrong, {sealed(ring)});
  }
  // Less than a message, and nothing at all.
  const int cut = ShmPeer::Dial(host.endpoint());
  EXPECT_EQ(send(cut, "CSHM", 4, MSG_NOSIGNAL), 4);
  char byte;
  EXPECT_EQ(recv(cut, &byte, 1, 0), 0);
  close(cut);
  const int silent = ShmPeer::Dial(host.endpoint());
  ExpectAlive(host);
  EXPECT_EQ(recv(silent, &byte, 1, 0), 0) << "it is closed at the deadline";
  close(silent);
}

TEST(ShmTransport, AHostsMemoryCannotBeWritten) {
  Host host(EchoAll(), Listening(kShm), Talking(kShm));
  ShmPeer peer(host.endpoint());
  ASSERT_TRUE(peer.connected());
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, peer.peer_memory(), 0), MAP_FAILED);
  EXPECT_LT(write(peer.peer_memory(), "x", 1), 0);
  EXPECT_NE(ftruncate(peer.peer_memory(), 0), 0);
}

TEST(ShmTransport, FramesWrittenBeforeTheEndArrive) {
  Inbox<uint64_t> arrived;
  Host host([&](Host&, ConnId, wire::InFrame& f) { arrived.Put(f.header.request_id); }, Listening(kShm));
  BufferPool pool;
  {
    ShmPeer peer(host.endpoint());
    for (uint64_t id = 1; id <= 20; ++id) {
      peer.Send(wire::Flatten(*ValuesFrame(id, 40'000, pool), pool).bytes());
    }
  }
  host.gone.Take();
  for (uint64_t id = 1; id <= 20; ++id) EXPECT_EQ(arrived.Take(), id);
}

TEST(ShmTransport, AWriterKilledInTheMiddleIsNoticed) {
  for (const size_t cut : {size_t{30}, size_t{64}, size_t{1'000'000}, size_t{9'000'000}}) {
    Child child([&](int in, int out) {
      BufferPool pool;
      ShmPeer peer(wire::Endpoint{"127.0.0.1", Hear<uint16_t>(in)});
      peer.Send(wire::Flatten(*EmptyFrame(1, pool), pool).bytes());
      const Buffer frame = wire::Flatten(*ValuesFrame(2, 10'000'000, pool), pool);
      peer.Send(frame.bytes().first(cut));
      Tell(out, true);
      while (true) pause();
    });
    Host host(EchoAll(), Listening(kShm), Talking(kShm));
    child.Tell(host.endpoint().port);
    EXPECT_TRUE(child.Hear<bool>());
    EXPECT_TRUE(host.gone.empty());
    child.Kill();
    host.gone.Take();
    ExpectAlive(host);
  }
}

TEST(ShmTransport, AHostKilledWhileItIsWrittenToIsNoticed) {
  Child child(HostInChild);
  const wire::Endpoint at{"127.0.0.1", child.Hear<uint16_t>()};
  Caller caller(Talking(kShm));
  const ConnId conn = caller.Connect(at);
  caller.Send(conn, EmptyFrame(1, caller.pool));
  caller.messages.Take();
  child.Stop();
  for (uint64_t id = 2; id < 8; ++id) caller.Send(conn, ValuesFrame(id, 10'000'000, caller.pool));
  // A peer that stands still blocks nobody: what does not fit waits.
  EXPECT_TRUE(Until([&] {
    const size_t queued = OnLoop(caller.loop, [&] { return caller.network->queued_bytes(); });
    return queued > 50'000'000 && queued < 60'000'000;
  }));
  EXPECT_TRUE(caller.gone.empty());
  child.Kill();
  EXPECT_EQ(caller.gone.Take(), conn);
}

TEST(ShmTransport, AHostThatStopsAndGoesOnMissesNothing) {
  Child child(HostInChild);
  const wire::Endpoint at{"127.0.0.1", child.Hear<uint16_t>()};
  Caller caller(Talking(kShm));
  const ConnId conn = caller.Connect(at);
  uint64_t id = 1;
  caller.Send(conn, EmptyFrame(id, caller.pool));
  EXPECT_EQ(caller.messages.Take().header.request_id, id);
  for (int round = 0; round < 5; ++round) {
    child.Stop();
    for (int i = 0; i < 3; ++i) caller.Send(conn, ValuesFrame(++id, 3'000'000, caller.pool));
    EXPECT_TRUE(Until([&] {
      const size_t queued = OnLoop(caller.loop, [&] { return caller.network->queued_bytes(); });
      return queued > 0 && queued < 8'000'000;  // the ring is full
    }));
    child.GoOn();
    for (uint64_t back = id - 2; back <= id; ++back) {
      EXPECT_EQ(caller.messages.Take().header.request_id, back);
    }
  }
}

// The kernel accepts by TCP for a process that stands still: such a connection is known as one that could be
// better, and the next one is.
TEST(ShmTransport, AHostThatStoodStillIsReachedByTcpAndThenThroughMemoryAgain) {
  Child child([](int, int out) {
    Host host(EchoAll(), Listening(kAuto), Talking(kAuto));
    Tell(out, host.endpoint().port);
    while (true) pause();
  });
  const wire::Endpoint at{"127.0.0.1", child.Hear<uint16_t>()};
  Caller caller(Talking(kAuto));
  const auto fell_back = [&](ConnId conn) {
    return OnLoop(caller.loop, [&] { return caller.network->FellBack(conn); });
  };
  const auto shm = [&] { return OnLoop(caller.loop, [&] { return caller.network->shm_connections(); }); };
  child.Stop();
  const ConnId by_tcp = caller.Connect(at);
  EXPECT_TRUE(fell_back(by_tcp));
  EXPECT_EQ(shm(), 0u);
  child.GoOn();
  caller.Send(by_tcp, EmptyFrame(1, caller.pool));
  EXPECT_EQ(caller.messages.Take().header.request_id, 1u);
  const ConnId again = caller.Connect(at);
  caller.Send(again, EmptyFrame(2, caller.pool));
  EXPECT_EQ(caller.messages.Take().header.request_id, 2u);
  EXPECT_FALSE(fell_back(again));
  EXPECT_EQ(shm(), 1u);
}

// Many sleeps and wake-ups between two processes: one that is missed would hang here.
TEST(ShmTransport, NoWakeUpIsMissed) {
  Child child(HostInChild);
  const wire::Endpoint at{"127.0.0.1", child.Hear<uint16_t>()};
  Caller caller(Talking(kShm));
  const ConnId conn = caller.Connect(at);
  Random random(5);
  for (uint64_t id = 1; id <= 3'000; ++id) {
    // Pauses around the length of the spinning, so that both sides often go to sleep just then.
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(random.Below(150));
    while (std::chrono::steady_clock::now() < until) {
    }
    caller.Send(conn, EmptyFrame(id, caller.pool));
    ASSERT_EQ(caller.messages.Take().header.request_id, id);
  }
}

TEST(ShmTransport, OtherUsersAreReachedByTcpUnlessPermitted) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  constexpr uid_t kOther = 54'321;
  for (const bool permitted : {false, true}) {
    Child child([&](int, int out) {
      if (setuid(kOther) != 0) _exit(1);
      PipeChoice mine = kAuto;
      mine.other_users = permitted;
      Host host(EchoAll(), Listening(mine));
      Tell(out, host.endpoint().port);
      while (true) pause();
    });
    const wire::Endpoint at{"127.0.0.1", child.Hear<uint16_t>()};
    for (const bool asked : {false, true}) {
      PipeChoice choice = kAuto;
      choice.other_users = asked;
      Caller caller(Talking(choice));
      caller.Send(caller.Connect(at), EmptyFrame(1, caller.pool));
      EXPECT_EQ(caller.messages.Take().header.request_id, 1u);
      EXPECT_EQ(OnLoop(caller.loop, [&] { return caller.network->shm_connections(); }),
                permitted && asked ? 1u : 0u);
    }
  }
}

// Not that nobody listens under the other names that were tried.
TEST(ShmTransport, WhyMemoryIsNotSharedWithAnotherUserIsSaid) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  Child child([&](int, int out) {
    if (setuid(54'321) != 0) _exit(1);
    Host host(EchoAll(), Listening(kShm));
    Tell(out, host.endpoint().port);
    while (true) pause();
  });
  const auto names = shm::NamesToTry(boost::asio::ip::make_address("127.0.0.1"), child.Hear<uint16_t>());
  Loop loop("handshake");
  Inbox<std::string> told;
  const auto handshake = std::make_shared<shm::Handshake>(
      loop, kShm, [&](Result<DetachedPipe> pipe) { told.Put(pipe.status().message()); });
  loop.Start();
  loop.Post([&] { handshake->Start(names); });
  EXPECT_NE(told.Take().find("another user: set CAIRN_SHM_USERS=any"), std::string::npos);
  loop.Stop();
}

// A listener of the name that is no Cairn: silent, or answering nonsense. TCP is used instead.
TEST(ShmTransport, AStrangerBehindTheNameIsPassedBy) {
  Host host(EchoAll(), Listening(kTcp));
  socklen_t length = 0;
  const sockaddr_un name = ShmPeer::Address(host.endpoint(), &length);
  const int stranger = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::bind(stranger, reinterpret_cast<const sockaddr*>(&name), length), 0);
  ASSERT_EQ(::listen(stranger, 8), 0);
  for (const bool silent : {false, true}) {
    Caller caller(Talking(kAuto));
    const ConnId conn = caller.Begin(host.endpoint());
    const int peer = ::accept4(stranger, nullptr, nullptr, SOCK_CLOEXEC);
    if (!silent) {
      EXPECT_EQ(::send(peer, "nonsense", 8, MSG_NOSIGNAL), 8);
    }
    EXPECT_EQ(caller.connected.Take(), conn);
    caller.Send(conn, EmptyFrame(1, caller.pool));
    EXPECT_EQ(caller.messages.Take().header.request_id, 1u);
    ::close(peer);
  }
  ::close(stranger);
}

// A server that answers with garbage while a large frame is half written: when the client hears
// that the connection is gone, nothing reads the borrowed memory any more.
TEST(ShmTransport, AServerThatLiesHarmsNoClient) {
  Host host(EchoAll(), Listening(kTcp));
  socklen_t length = 0;
  const sockaddr_un name = ShmPeer::Address(host.endpoint(), &length);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&name), length), 0);
  ASSERT_EQ(::listen(listener, 8), 0);
  for (const bool bad_counter : {false, true}) {
    TcpNetworkOptions options = Talking(kShm);
    options.close_drops_queued = true;
    Caller caller(options);
    const ConnId conn = caller.Begin(host.endpoint());
    ShmPeer server(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), /*speaks_first=*/false);
    EXPECT_EQ(caller.connected.Take(), conn);
    caller.Send(conn, ValuesFrame(1, 20'000'000, caller.pool));
    EXPECT_TRUE(Until([&] { return server.peer_written().load() == server.ring_bytes(); }));
    if (bad_counter) {
      server.taken().store(server.ring_bytes() + 1);
      server.Wake();
    } else {
      const std::string garbage(200, 'x');
      server.Send(std::as_bytes(std::span(garbage)));
    }
    EXPECT_EQ(caller.gone.Take(), conn);
    EXPECT_EQ(OnLoop(caller.loop, [&] { return caller.network->queued_bytes(); }), 0u);
    EXPECT_TRUE(server.Closed());
  }
  ::close(listener);
}

TEST(ShmTransport, NothingIsLeftOfConnectionsThatEnded) {
  const auto descriptors = [] {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count;
  };
  const auto mappings = [] {
    size_t count = 0;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) count += line.find("cairn-shm") != std::string::npos;
    return count;
  };
  Host host(EchoAll(), Listening(kShm), Talking(kShm));
  Caller caller(Talking(kShm));
  const size_t before = descriptors();
  for (uint64_t round = 1; round <= 30; ++round) {
    const ConnId conn = caller.Connect(host.endpoint());
    caller.Send(conn, ValuesFrame(round, 1000, caller.pool));
    caller.messages.Take();
    EXPECT_EQ(mappings(), 4u);
    caller.loop.Post([&] { caller.network->Close(conn); });
    host.gone.Take();
    EXPECT_TRUE(Until([&] { return mappings() == 0; }));
  }
  EXPECT_TRUE(Until([&] { return descriptors() == before; }));
}

}  // namespace
}  // namespace cairn::transport
