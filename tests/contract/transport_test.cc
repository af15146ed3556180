// The contract of a transport, over TCP and through shared memory: frames arrive whole, in order and
// unchanged, or the connection ends; peers that vanish or send garbage harm nobody but themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "contract/peers.h"
#include "transport/tcp/sockets.h"

namespace cairn::transport {
namespace {

std::vector<std::byte> BytesOf(const wire::Frame& frame, BufferPool& pool) {
  const Buffer flat = wire::Flatten(frame, pool);
  return {flat.data(), flat.data() + flat.size()};
}

// The one Error frame that a peer got before it was closed.
Status ErrorFrom(const std::vector<std::byte>& bytes) {
  BufferPool pool;
  auto frame = wire::Parse(bytes, wire::kMaxBodyBytes, pool);
  if (!frame.ok()) return frame.status().With("no frame");
  auto error = wire::DecodeError(frame->header, frame->body());
  if (!error.ok()) return error.status().With("no error frame");
  return {error->code, std::string(error->text)};
}

bool Says(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

class Transport : public ::testing::TestWithParam<PipeKind> {
 protected:
  static PipeChoice Pipe() { return {.kind = GetParam()}; }
  static ListenerOptions Listening() { return {.pipe = Pipe()}; }
  static TcpNetworkOptions Talking() { return {.pipe = Pipe()}; }
  static RawPeer Peer(const Host& host) { return RawPeer(host.endpoint(), GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Over, Transport, ::testing::Values(PipeKind::kTcp, PipeKind::kShm),
                         [](const auto& tested) { return tested.param == PipeKind::kTcp ? "Tcp" : "Shm"; });

TEST_P(Transport, FramesOfEverySizeComeBackUnchanged) {
  Host host(EchoAll(), Listening(), Talking());
  Caller caller(Talking());
  const ConnId conn = caller.Connect(host.endpoint());
  const size_t sizes[] = {
      0,      1,      63,      64,      65,      4000,    65'407,  65'408,        65'409,    65'472,
      65'536, 65'600, 131'072, 262'080, 262'144, 262'145, 1 << 20, (1 << 20) + 7, 20'000'000};
  uint64_t id = 0;
  caller.Send(conn, EmptyFrame(++id, caller.pool));
  EXPECT_EQ(caller.messages.Take().header.request_id, id);
  for (size_t size : sizes) {
    const wire::FramePtr frame = ValuesFrame(++id, size, caller.pool);
    caller.Send(conn, frame);
    const wire::InFrame back = caller.messages.Take();
    const std::vector<std::byte> sent = BytesOf(*frame, caller.pool);
    ASSERT_EQ(back.header.request_id, id);
    ASSERT_EQ(back.body().size() + sizeof(wire::FrameHeader), sent.size());
    EXPECT_TRUE(std::equal(back.body().begin(), back.body().end(), sent.begin() + sizeof(wire::FrameHeader)))
        << size;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(back.body().data()) % wire::kAlignment, 0u);
  }
}

// Through a pipe that takes some of each at once: what it does not take must have been copied.
TEST_P(Transport, TransientFramesAreNotLookedAtLater) {
  std::vector<std::byte> memory;
  const auto answer = [&memory](Host& host, ConnId conn, wire::InFrame& frame) {
    const size_t bytes = frame.header.request_id;
    for (uint8_t filled = 1; filled <= 4; ++filled) {
      memory.assign(bytes, std::byte{filled});
      auto reply = EmptyFrame(filled, host.pool);
      reply->header().type = wire::FrameType::kPullReply;
      reply->values.emplace_back(std::span(memory).first(bytes / 2));
      reply->values.emplace_back(std::span(memory).subspan(bytes / 2));
      reply->transient = true;
      wire::Seal(*reply);
      host.network->Send(conn, std::move(reply));
    }
    memory.assign(bytes, std::byte{99});
  };
  Host host(answer, Listening(), Talking());
  Caller caller(Talking());
  const ConnId conn = caller.Connect(host.endpoint());
  for (const size_t bytes : std::vector<size_t>{100, 70'000, 3'000'000, 20'000'000}) {
    caller.Send(conn, EmptyFrame(bytes, caller.pool));
    for (uint8_t filled = 1; filled <= 4; ++filled) {
      const wire::InFrame frame = caller.messages.Take();
      ASSERT_EQ(frame.header.request_id, filled);
      ASSERT_EQ(frame.body().size(), bytes);
      const auto other = std::find_if(frame.body().begin(), frame.body().end(),
                                      [&](std::byte b) { return b != std::byte{filled}; });
      ASSERT_EQ(other - frame.body().begin(), static_cast<ptrdiff_t>(bytes));
    }
  }
}

TEST_P(Transport, ManyFramesOfMixedSizesKeepTheirOrder) {
  Host host(EchoAll(), Listening(), Talking());
  Caller caller(Talking());
  const ConnId conn = caller.Connect(host.endpoint());
  Random random(7);
  constexpr uint64_t kFrames = 20'000;
  for (uint64_t id = 1; id <= kFrames; ++id) {
    const size_t size = random.Chance(0.01) ? random.Below(300'000) : random.Below(200);
    caller.Send(conn, ValuesFrame(id, size, caller.pool));
  }
  for (uint64_t id = 1; id <= kFrames; ++id) ASSERT_EQ(caller.messages.Take().header.request_id, id);
  EXPECT_TRUE(caller.gone.empty());
}

// What follows the first frame in the same segment moves with the connection to its loop.
TEST_P(Transport, NothingIsLostWhenAConnectionMovesToItsLoop) {
  Host host(EchoAll(), Listening(), Talking());
  for (int round = 0; round < 50; ++round) {
    RawPeer peer = Peer(host);
    BufferPool pool;
    std::vector<std::byte> all;
    for (uint64_t id = 1; id <= 20; ++id) {
      const auto one = BytesOf(*ValuesFrame(id, id * 100, pool), pool);
      all.insert(all.end(), one.begin(), one.end());
    }
    all.resize(all.size() - round);  // the last one is cut differently each time
    peer.Send(all);
    peer.EndSending();
    const std::vector<std::byte> back = peer.ReadToEnd();
    // Whole frames come back, the cut one never.
    const size_t whole =
        round == 0 ? all.size() : all.size() + round - BytesOf(*ValuesFrame(20, 2000, pool), pool).size();
    ASSERT_LE(back.size(), whole);
    EXPECT_TRUE(std::equal(back.begin(), back.end(), all.begin()));
    host.gone.Take();
  }
}

TEST_P(Transport, SendBeforeConnectedIsDroppedAndAfterCloseIsHarmless) {
  Host host(EchoAll(), Listening(), Talking());
  Caller caller(Talking());
  const ConnId conn = OnLoop(caller.loop, [&] {
    const ConnId c = caller.network->Connect(host.endpoint());
    caller.network->Send(c, EmptyFrame(1, caller.pool));
    return c;
  });
  EXPECT_EQ(caller.connected.Take(), conn);
  caller.Send(conn, EmptyFrame(2, caller.pool));
  EXPECT_EQ(caller.messages.Take().header.request_id, 2u);
  caller.loop.Post([&] {
    caller.network->Close(conn);
    caller.network->Close(conn);
    caller.network->Send(conn, EmptyFrame(3, caller.pool));
  });
  host.gone.Take();
  EXPECT_TRUE(caller.gone.empty());  // no OnDisconnect follows a Close
}

TEST_P(Transport, AConnectionThatCannotBeMadeIsADisconnect) {
  Caller caller(Talking());
  uint16_t free_port = 0;
  {
    Host host(EchoAll(), Listening(), Talking());
    free_port = host.endpoint().port;
  }
  const ConnId refused = caller.Begin({"127.0.0.1", free_port});
  EXPECT_EQ(caller.gone.Take(), refused);
  const ConnId unknown = caller.Begin({"no-such-host.invalid", 1});
  EXPECT_EQ(caller.gone.Take(), unknown);
  EXPECT_TRUE(caller.connected.empty());
}

TEST_P(Transport, PeersThatVanishAreNoticedAndHarmNobody) {
  Host host(EchoAll(), Listening(), Talking());
  BufferPool pool;
  const auto frame = BytesOf(*ValuesFrame(1, 500'000, pool), pool);
  for (size_t cut : {size_t{64}, size_t{100}, size_t{70'000}, frame.size() - 1}) {
    for (bool reset : {false, true}) {
      RawPeer peer = Peer(host);
      peer.Send(*EmptyFrame(1, pool), pool);
      peer.Send(std::span(frame).first(cut));
      reset ? peer.Reset() : peer.Close();
      // A reset before the first frame was read needs no OnDisconnect: nobody had heard of it.
      if (!reset) host.gone.Take();
    }
  }
  Caller caller(Talking());
  const ConnId conn = caller.Connect(host.endpoint());
  caller.Send(conn, EmptyFrame(5, caller.pool));
  EXPECT_EQ(caller.messages.Take().header.request_id, 5u);
}

TEST_P(Transport, OtherProtocolsGetAnErrorAndAreClosed) {
  Host host(EchoAll(), Listening(), Talking());
  for (const std::string text : {"GET / HTTP/1.0\r\n\r\n", "\x16\x03\x01\x02", "SSH-2.0-OpenSSH_9.2\r\n"}) {
    RawPeer peer = Peer(host);
    peer.Send(text);
    const Status error = ErrorFrom(peer.ReadToEnd());
    EXPECT_EQ(error.code(), Code::kProtocol) << error.ToString();
    EXPECT_TRUE(Says(error, "protocol")) << error.ToString();
  }
}

TEST_P(Transport, AnotherVersionGetsAnErrorThatNamesBoth) {
  Host host(EchoAll(), Listening(), Talking());
  BufferPool pool;
  auto frame = EmptyFrame(9, pool);
  frame->header().version = 77;
  RawPeer peer = Peer(host);
  peer.Send(frame->head.bytes());
  const Status error = ErrorFrom(peer.ReadToEnd());
  EXPECT_EQ(error.code(), Code::kProtocol);
  EXPECT_TRUE(Says(error, "77") && Says(error, "version " + std::to_string(wire::kProtocolVersion)))
      << error.ToString();
}

TEST_P(Transport, LengthsAreCheckedBeforeMemoryIsTaken) {
  Host host(EchoAll(), Listening(), Talking());
  BufferPool pool;
  const auto send_header = [&](RawPeer& peer, uint32_t body_bytes) {
    auto frame = ValuesFrame(1, 0, pool);
    frame->header().body_bytes = body_bytes;
    peer.Send(frame->head.bytes().first(sizeof(wire::FrameHeader)));
  };
  {  // a stranger may send little
    RawPeer peer = Peer(host);
    send_header(peer, wire::kMaxUnauthenticatedBodyBytes + 1);
    EXPECT_EQ(ErrorFrom(peer.ReadToEnd()).code(), Code::kProtocol);
  }
  {  // a known peer no more than a frame's maximum
    RawPeer peer = Peer(host);
    const auto hello = BytesOf(*EmptyFrame(1, pool), pool);
    peer.Send(hello);
    send_header(peer, wire::kMaxBodyBytes + 1);
    auto back = peer.ReadToEnd();
    ASSERT_GT(back.size(), hello.size());
    back.erase(back.begin(), back.begin() + static_cast<ptrdiff_t>(hello.size()));
    EXPECT_EQ(ErrorFrom(back).code(), Code::kProtocol);
    host.gone.Take();
  }
  EXPECT_LT(host.pool.allocated_bytes(), size_t{4} << 20);
}

// A role may leave a peer a stranger after its first frame, until it says a word of its own.
TEST_P(Transport, TheRoleDecidesWhenAPeerIsAccepted) {
  TcpNetworkOptions options = Talking();
  options.accepts = [](const wire::Frame& frame) { return frame.header().request_id == 2; };
  Host host(EchoAll(), Listening(), options);
  Caller caller(Talking());
  const ConnId early = caller.Connect(host.endpoint());
  caller.Send(early, EmptyFrame(1, caller.pool));
  caller.Send(early, ValuesFrame(3, 100'000, caller.pool));
  EXPECT_EQ(caller.messages.Take().header.request_id, 1u);
  EXPECT_EQ(caller.messages.Take().header.type, wire::FrameType::kError);
  EXPECT_EQ(caller.gone.Take(), early);
  const ConnId good = caller.Connect(host.endpoint());
  caller.Send(good, EmptyFrame(2, caller.pool));
  caller.Send(good, ValuesFrame(3, 100'000, caller.pool));
  EXPECT_EQ(caller.messages.Take().header.request_id, 2u);
  EXPECT_EQ(caller.messages.Take().header.type, wire::FrameType::kPush);
}

TEST_P(Transport, DamagedFramesAreNotDelivered) {
  int delivered = 0;
  Host host([&](Host&, ConnId, wire::InFrame&) { ++delivered; }, Listening());
  BufferPool pool;
  const wire::FramePtr good = wire::EncodeControl(wire::StatusRequest{7}, pool);
  const auto bytes = BytesOf(*good, pool);
  for (size_t at = sizeof(wire::FrameHeader); at < bytes.size(); ++at) {
    auto bad = bytes;
    bad[at] ^= std::byte{1};
    RawPeer peer = Peer(host);
    peer.Send(bad);
    EXPECT_EQ(ErrorFrom(peer.ReadToEnd()).code(), Code::kProtocol);
  }
  EXPECT_EQ(OnLoop(host.serving, [&] { return delivered; }), 0);
}

TEST_P(Transport, RandomBytesNeverHarmTheHost) {
  Host host(EchoAll(), Listening(), Talking());
  Random random(11);
  BufferPool pool;
  for (int i = 0; i < 100; ++i) {
    auto bytes = BytesOf(*ValuesFrame(1, random.Below(2000), pool), pool);
    for (uint64_t flips = 1 + random.Below(8); flips > 0; --flips) {
      bytes[random.Below(i % 2 == 0 ? sizeof(wire::FrameHeader) : bytes.size())] =
          static_cast<std::byte>(random.Next());
    }
    RawPeer peer = Peer(host);
    peer.Send(bytes);
    peer.EndSending();
    peer.ReadToEnd();
  }
  Caller caller(Talking());
  caller.Send(caller.Connect(host.endpoint()), EmptyFrame(5, caller.pool));
  EXPECT_EQ(caller.messages.Take().header.request_id, 5u);
}

TEST_P(Transport, FiveHundredIdleConnections) {
  RaiseFileLimit();
  Host host(EchoAll(), Listening(), Talking());
  std::vector<RawPeer> idle;
  for (int i = 0; i < 500; ++i) idle.push_back(Peer(host));
  Caller caller(Talking());
  caller.Send(caller.Connect(host.endpoint()), EmptyFrame(5, caller.pool));
  EXPECT_EQ(caller.messages.Take().header.request_id, 5u);
  // They are all still there, and may still speak.
  BufferPool pool;
  for (RawPeer& peer : idle) peer.Send(*EmptyFrame(6, pool), pool);
  for (RawPeer& peer : idle) {
    peer.EndSending();
    EXPECT_EQ(peer.ReadToEnd().size(), sizeof(wire::FrameHeader));
  }
}

TEST_P(Transport, WhoSaysNothingIsClosedAtTheDeadline) {
  ListenerOptions listening = Listening();
  listening.handshake_ms = 1;
  Host host(EchoAll(), listening, Talking());
  RawPeer peer = Peer(host);
  EXPECT_TRUE(peer.ReadToEnd().empty());
}

TEST_P(Transport, TheOldestSilentPeerMakesRoom) {
  ListenerOptions listening = Listening();
  listening.max_waiting = 3;
  Host host(EchoAll(), listening, Talking());
  std::vector<RawPeer> peers;
  for (int i = 0; i < 5; ++i) peers.push_back(Peer(host));
  EXPECT_TRUE(peers[0].ReadToEnd().empty());
  EXPECT_TRUE(peers[1].ReadToEnd().empty());
  EXPECT_EQ(OnLoop(host.accepting, [&] { return host.listener->waiting(); }), 3u);
}

// A peer that asks and never reads is no longer listened to; when it reads, it gets everything.
TEST_P(Transport, AnswersThatNobodyReadsAreBounded) {
  constexpr size_t kBound = size_t{1} << 20, kAnswer = 100'000;
  constexpr uint64_t kRequests = 500;
  size_t most = 0;
  TcpNetworkOptions options = Talking();
  options.stop_reading_at_bytes = kBound;
  Host host(
      [&](Host& h, ConnId conn, wire::InFrame& frame) {
        h.network->Send(conn, ValuesFrame(frame.header.request_id, kAnswer, h.pool));
        most = std::max(most, h.network->queued_bytes());
      },
      Listening(), options);
  RawPeer peer = Peer(host);
  BufferPool pool;
  for (uint64_t id = 1; id <= kRequests; ++id) peer.Send(*EmptyFrame(id, pool), pool);
  const size_t expected = kRequests * BytesOf(*ValuesFrame(1, kAnswer, pool), pool).size();
  EXPECT_EQ(peer.Read(expected).size(), expected);
  EXPECT_LE(OnLoop(host.serving, [&] { return most; }), kBound + 2 * kAnswer);
}

// The caller of a request that ended early takes its memory back while the frame still waits.
TEST_P(Transport, DisownedFramesReadNoBorrowedMemory) {
  Inbox<wire::InFrame> arrived;
  Host host([&](Host&, ConnId, wire::InFrame& frame) { arrived.Put(std::move(frame)); }, Listening());
  TcpNetworkOptions options = Talking();
  options.close_drops_queued = true;
  Caller caller(options);
  const ConnId conn = caller.Connect(host.endpoint());
  caller.Send(conn, EmptyFrame(1, caller.pool));
  arrived.Take();
  std::promise<void> go_on;
  host.serving.Post([&] { go_on.get_future().wait(); });  // the host reads nothing now
  std::vector<std::byte> values(20'000'000, std::byte{1});
  wire::PushParams params;
  for (uint64_t id = 2; id <= 3; ++id) {  // one half written, one not begun
    wire::DataParts parts;
    parts.request_id = id;
    parts.params = &params;
    parts.values.emplace_back(values);
    const wire::FramePtr frame = wire::EncodeData(std::move(parts), caller.pool);
    caller.Send(conn, frame);
    caller.loop.Post([&caller, frame] { caller.network->Disown(frame.get()); });
  }
  OnLoop(caller.loop, [] { return 0; });
  std::fill(values.begin(), values.end(), std::byte{2});
  go_on.set_value();
  for (uint64_t id = 2; id <= 3; ++id) {
    const wire::InFrame frame = arrived.Take();
    EXPECT_EQ(frame.header.request_id, id);
    const auto got = frame.body().last(values.size());
    EXPECT_TRUE(std::all_of(got.begin(), got.end(), [](std::byte b) { return b == std::byte{1}; }));
  }
}

// A peer answers with garbage while a large frame is half written: when the client hears that the
// connection is gone, nothing reads the borrowed memory any more.
TEST(TcpTransport, AConnectionThatEndsOverGarbageReadsNoBorrowedMemory) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length), 0);

  BufferPool pool;
  Loop loop("garbage");
  std::promise<void> gone;
  std::unique_ptr<TcpNetwork> network;
  network = std::make_unique<TcpNetwork>(
      loop, pool,
      TcpNetwork::Events{[](ConnId) {}, [](ConnId, wire::InFrame&) {}, [&](ConnId) { gone.set_value(); }},
      TcpNetworkOptions{.close_drops_queued = true, .log = Silent()});
  loop.Start();
  const ConnId conn = OnLoop(loop, [&] { return network->Connect({"127.0.0.1", ntohs(address.sin_port)}); });
  const int peer = ::accept(listener, nullptr, nullptr);
  ASSERT_GE(peer, 0);
  std::vector<std::byte> values(20'000'000, std::byte{1});
  wire::PushParams params;
  // Sent until it is taken: what is sent before the connection stands is dropped.
  while (OnLoop(loop, [&] { return network->queued_bytes(); }) == 0) {
    wire::DataParts parts;
    parts.request_id = 1;
    parts.params = &params;
    parts.values.emplace_back(values);
    OnLoop(loop, [&, frame = wire::EncodeData(std::move(parts), pool)] {
      network->Send(conn, frame);
      return 0;
    });
  }
  const std::string garbage(200, 'x');
  ASSERT_EQ(::send(peer, garbage.data(), garbage.size(), 0), static_cast<ssize_t>(garbage.size()));
  gone.get_future().wait();
  EXPECT_EQ(OnLoop(loop, [&] { return network->queued_bytes(); }), 0u);
  std::fill(values.begin(), values.end(), std::byte{2});
  size_t reused = 0;
  std::vector<std::byte> got(1 << 16);
  for (ssize_t n; (n = ::recv(peer, got.data(), got.size(), 0)) > 0;)
    reused += static_cast<size_t>(std::count(got.begin(), got.begin() + n, std::byte{2}));
  EXPECT_LT(reused, 1000u) << "only header bytes may look like it";
  OnLoop(loop, [&] {
    network.reset();
    return 0;
  });
  ::close(peer);
  ::close(listener);
}

TEST_P(Transport, ARefusalArrivesBeforeTheClose) {
  BufferPool pool;
  Loop loop("refusing");
  TcpNetwork network(loop, pool, {[](ConnId) {}, [](ConnId, wire::InFrame&) {}, [](ConnId) {}},
                     {.log = Silent()});
  ListenerOptions listening = Listening();
  listening.log = Silent();
  auto listener = Listener::Open(loop, pool, listening).value();
  listener->Start([&](AcceptedConnection accepted) {
    network.Refuse(std::move(accepted),
                   wire::EncodeControl(wire::Refusal{1, Code::kProtocol, "not here"}, pool));
  });
  loop.Start();
  for (int i = 0; i < 20; ++i) {
    RawPeer peer(listener->endpoint(), GetParam());
    peer.Send(*ValuesFrame(1, 60'000, pool), pool);
    peer.Send(*ValuesFrame(2, 60'000, pool), pool);  // never read as a frame
    const auto got = peer.ReadToEnd();
    const auto frame = wire::Parse(got, wire::kMaxBodyBytes, pool);
    ASSERT_TRUE(frame.ok()) << frame.status().ToString();
    const auto message = wire::DecodeControl(frame->header, frame->body());
    ASSERT_TRUE(message.ok());
    EXPECT_EQ(std::get<wire::Refusal>(*message).text, "not here");
  }
  loop.Stop();
}

}  // namespace
}  // namespace cairn::transport
