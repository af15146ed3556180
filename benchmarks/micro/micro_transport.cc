// micro_transport [--json]: what the transport itself costs, between two processes and over both
// pipes: a frame of 4 KB there and back, and frames of 16 MB one way, with nobody behind it. Beside
// them, in the same run, a bare ring in shared memory between two threads: copied in by one, copied
// out by the other, 64 KiB at a time.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "limits/limits.h"
#include "limits/repeat.h"
#include "transport/shm/ring_pair.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/loop.h"
#include "transport/tcp/tcp_network.h"
#include "wire/data.h"

namespace {
using namespace cairn;             // NOLINT
using namespace cairn::transport;  // NOLINT

constexpr size_t kSmall = 4096, kLarge = size_t{16} << 20;
constexpr int kRoundTrips = 5'000, kLargeFrames = 16;

LogLine Log() {
  return [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
}

wire::FramePtr PushOf(std::span<const std::byte> values, BufferPool& pool) {
  static const wire::PushParams params;
  wire::DataParts parts;
  parts.type = wire::FrameType::kPush;
  parts.params = &params;
  parts.values.emplace_back(values);
  return wire::EncodeData(std::move(parts), pool);
}

wire::FramePtr Empty(BufferPool& pool) {
  auto frame = std::make_shared<wire::Frame>();
  frame->head = pool.Get(sizeof(wire::FrameHeader));
  frame->header() = wire::FrameHeader{};
  wire::Seal(*frame);
  return frame;
}

// Echoes small frames as they are, answers large ones with an empty frame. In a process of its own.
[[noreturn]] void Serve(PipeKind kind, int tell) {
  BufferPool pool;
  Loop accepting("accepting"), serving("serving");
  std::unique_ptr<TcpNetwork> network;
  network = std::make_unique<TcpNetwork>(
      serving, pool,
      TcpNetwork::Events{[](ConnId) {},
                         [&](ConnId conn, wire::InFrame& frame) {
                           if (frame.body().size() > 2 * kSmall) return network->Send(conn, Empty(pool));
                           auto back = std::make_shared<wire::Frame>();
                           back->head = pool.Get(sizeof(wire::FrameHeader));
                           std::memcpy(back->head.data(), &frame.header, sizeof(frame.header));
                           back->owned = std::move(frame.storage);
                           if (!back->owned.empty()) back->values.emplace_back(back->owned.bytes());
                           network->Send(conn, std::move(back));
                         },
                         [](ConnId) { _exit(0); }},
      TcpNetworkOptions{.log = Log()});
  auto listener = Listener::Open(accepting, pool, {.pipe = PipeChoice{.kind = kind}, .log = Log()}).value();
  listener->Start([&](AcceptedConnection accepted) {
    auto held = std::make_shared<AcceptedConnection>(std::move(accepted));
    serving.Post([&network, held] { network->Adopt(std::move(*held)); });
  });
  accepting.Start();
  serving.Start();
  const uint16_t port = listener->endpoint().port;
  if (write(tell, &port, sizeof port) != static_cast<ssize_t>(sizeof port)) _exit(1);
  alarm(120);
  while (true) pause();
}

struct Figures {
  double round_trip_us = 0, round_trip_after_work_us = 0, gb_per_s = 0;
};

// The other process. Everything happens on the loop: what is measured is the transport.
class Client {
 public:
  Client(PipeKind kind, uint16_t port) {
    network_ = std::make_unique<TcpNetwork>(
        loop_, pool_,
        TcpNetwork::Events{[this](ConnId) { connected_.set_value(); },
                           [this](ConnId, wire::InFrame&) { OnAnswer(); }, [](ConnId) { std::abort(); }},
        TcpNetworkOptions{.pipe = PipeChoice{.kind = kind}, .log = Log()});
    loop_.Start();
    loop_.Post([this, port] { conn_ = network_->Connect({"127.0.0.1", port}); });
    connected_.get_future().wait();
  }
  ~Client() { loop_.Stop(); }

  // Sends `frame` `times` times, `window` of them at once, and waits for all answers.
  void Run(const wire::FramePtr& frame, int times, int window) {
    std::promise<void> all;
    loop_.Post([&] {
      frame_ = frame;
      unsent_ = times;
      unanswered_ = times;
      all_ = &all;
      for (int i = 0; i < window && unsent_ > 0; ++i) SendOne();
    });
    all.get_future().wait();
  }
  BufferPool& pool() { return pool_; }

 private:
  void SendOne() {
    --unsent_;
    network_->Send(conn_, frame_);
  }
  void OnAnswer() {
    if (unsent_ > 0) SendOne();
    if (--unanswered_ == 0) all_->set_value();
  }

  BufferPool pool_;
  Loop loop_{"client"};
  std::unique_ptr<TcpNetwork> network_;
  ConnId conn_;
  std::promise<void> connected_;
  wire::FramePtr frame_;
  int unsent_ = 0, unanswered_ = 0;
  std::promise<void>* all_ = nullptr;
};

// One round trip after a millisecond of other work, as a worker does it: all loops sleep by then.
double AfterComputing(Client& client, const wire::FramePtr& frame) {
  std::vector<double> seconds;
  for (int i = 0; i < 301; ++i) {
    const double start = bench::SecondsNow();
    double now = start;
    while (now < start + 1e-3) now = bench::SecondsNow();
    client.Run(frame, 1, 1);
    seconds.push_back(bench::SecondsNow() - now);
  }
  std::nth_element(seconds.begin(), seconds.begin() + 150, seconds.end());
  return seconds[150] * 1e6;
}

Figures Measure(PipeKind kind) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t server = fork();
  if (server == 0) Serve(kind, ends[1]);
  uint16_t port = 0;
  if (read(ends[0], &port, sizeof port) != static_cast<ssize_t>(sizeof port)) std::abort();
  Figures figures;
  {
    Client client(kind, port);
    std::vector<std::byte> values(kLarge, std::byte{1});
    const auto small = PushOf(std::span(values).first(kSmall), client.pool());
    const auto large = PushOf(values, client.pool());
    client.Run(Empty(client.pool()), 1, 1);
    figures.round_trip_us =
        bench::MedianSeconds(5, [&] { client.Run(small, kRoundTrips, 1); }) / kRoundTrips * 1e6;
    figures.round_trip_after_work_us = AfterComputing(client, small);
    const double seconds = bench::MedianSeconds(5, [&] { client.Run(large, kLargeFrames, 2); });
    figures.gb_per_s = kLargeFrames * double{kLarge} / seconds * 1e-9;
  }
  int status = 0;
  waitpid(server, &status, 0);
  close(ends[0]);
  close(ends[1]);
  return figures;
}

// Two threads, one ring of 2 MiB. `to_cache`: into a private buffer of 64 KiB, else into 16 MB.
double BareRing(bool to_cache) {
  auto one = shm::Memory::Create(shm::kRingBytes).value(), two = shm::Memory::Create(shm::kRingBytes).value();
  auto one_seen = shm::Memory::MapPeers(dup(one.fd()), shm::kRingBytes).value();
  auto two_seen = shm::Memory::MapPeers(dup(two.fd()), shm::kRingBytes).value();
  shm::RingPair writer(std::move(one), std::move(two_seen)), reader(std::move(two), std::move(one_seen));
  std::vector<std::byte> source(kLarge, std::byte{1});
  std::vector<std::byte> target(to_cache ? shm::RingPair::kPieceBytes : kLarge);
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    for (size_t at = 0; !stop.load(std::memory_order_relaxed);) {
      const iovec piece{source.data() + at, std::min(shm::RingPair::kPieceBytes, kLarge - at)};
      const size_t wrote = writer.Write({&piece, 1});
      if (wrote == 0) std::this_thread::yield();
      at = (at + wrote) % kLarge;
    }
  });
  const double seconds = bench::MedianSeconds(5, [&] {
    for (size_t got = 0; got < kLargeFrames * kLarge;) {
      const size_t at = got % target.size();
      const size_t most = std::min(shm::RingPair::kPieceBytes, target.size() - at);
      const size_t read = reader.Read({std::span(target).subspan(at, most), {}});
      if (read == 0) std::this_thread::yield();
      got += read;
    }
  });
  stop = true;
  thread.join();
  return kLargeFrames * double{kLarge} / seconds * 1e-9;
}
}  // namespace

int main(int argc, char** argv) {
  // Processes first: they are forked before there are threads.
  const Figures shm = Measure(PipeKind::kShm), tcp = Measure(PipeKind::kTcp);
  const double ring = BareRing(/*to_cache=*/false), ring_hot = BareRing(/*to_cache=*/true);
  const double memcpy = bench::MemcpyGbPerSecond(), loopback = bench::LoopbackGbPerSecond();
  if (argc > 1 && std::string_view(argv[1]) == "--json") {
    std::printf(
        "{\"shm\": {\"round_trip_us\": %.2f, \"round_trip_after_work_us\": %.2f, \"gb_per_s\": %.2f}, "
        "\"tcp\": {\"round_trip_us\": %.2f, \"round_trip_after_work_us\": %.2f, \"gb_per_s\": %.2f}, "
        "\"ring_gb_per_s\": %.2f, \"ring_to_cache_gb_per_s\": %.2f, \"memcpy_gb_per_s\": %.2f, "
        "\"loopback_gb_per_s\": %.2f}\n",
        shm.round_trip_us, shm.round_trip_after_work_us, shm.gb_per_s, tcp.round_trip_us,
        tcp.round_trip_after_work_us, tcp.gb_per_s, ring, ring_hot, memcpy, loopback);
    return 0;
  }
  std::printf("                                  shm      tcp\n");
  std::printf("4 KB there and back, µs      %8.2f %8.2f\n", shm.round_trip_us, tcp.round_trip_us);
  std::printf("after 1 ms of work, µs       %8.2f %8.2f\n", shm.round_trip_after_work_us,
              tcp.round_trip_after_work_us);
  std::printf("16 MB one way, GB/s          %8.2f %8.2f\n", shm.gb_per_s, tcp.gb_per_s);
  std::printf("limits, GB/s: ring to 16 MB %.2f, ring to cache %.2f, loopback %.2f, memcpy %.2f\n", ring,
              ring_hot, loopback, memcpy);
  std::printf("ratio: shm %.2f of the ring, tcp %.2f of loopback\n", shm.gb_per_s / ring,
              tcp.gb_per_s / loopback);
  return 0;
}
