// Softmax regression on MNIST with nothing but Cairn's public API: the first job of a C++ user.
//
//   cairn run -s 2 -w 2 -- softmax_mnist --data ~/.cache/cairn/mnist
//
// Each worker trains on its share of the samples. In sync mode a step is one PushPull: the servers
// take the mean of the workers' gradients, apply SGD and send the new weights back. In async mode
// each worker's gradient is applied at once.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cairn/client.h"
#include "cairn/optimizer.h"
#include "mnist_idx.h"

namespace {

using mnist::kClasses;
using mnist::kPixels;
constexpr size_t kParameters = (kPixels + 1) * kClasses;  // weights by pixel, then biases

struct Flags {
  std::string data;
  std::string mode = "sync";
  int epochs = 2;
  size_t batch = 50;  // per worker
  float lr = 0.3f;
  size_t limit = 0;  // samples used; 0: all
};

// Probabilities of the ten classes for one image.
void Predict(std::span<const float> w, const float* pixels, float* p) {
  for (size_t c = 0; c < kClasses; ++c) p[c] = w[kPixels * kClasses + c];
  for (size_t i = 0; i < kPixels; ++i) {
    if (pixels[i] == 0) continue;
    for (size_t c = 0; c < kClasses; ++c) p[c] += pixels[i] * w[i * kClasses + c];
  }
  const float top = *std::max_element(p, p + kClasses);
  float sum = 0;
  for (size_t c = 0; c < kClasses; ++c) sum += p[c] = std::exp(p[c] - top);
  for (size_t c = 0; c < kClasses; ++c) p[c] /= sum;
}

// Mean loss of the batch; `gradient` becomes its gradient.
float Gradient(std::span<const float> w, const mnist::Samples& samples, std::span<const uint32_t> batch,
               std::span<float> gradient) {
  std::fill(gradient.begin(), gradient.end(), 0.0f);
  float loss = 0;
  const float share = 1.0f / static_cast<float>(batch.size());
  for (uint32_t n : batch) {
    const float* pixels = &samples.pixels[n * kPixels];
    float p[kClasses];
    Predict(w, pixels, p);
    loss -= std::log(std::max(p[samples.labels[n]], 1e-10f));
    p[samples.labels[n]] -= 1.0f;
    for (size_t c = 0; c < kClasses; ++c) gradient[kPixels * kClasses + c] += share * p[c];
    for (size_t i = 0; i < kPixels; ++i) {
      if (pixels[i] == 0) continue;
      for (size_t c = 0; c < kClasses; ++c) gradient[i * kClasses + c] += share * pixels[i] * p[c];
    }
  }
  return loss * share;
}

double Accuracy(std::span<const float> w, const mnist::Samples& samples) {
  size_t right = 0;
  for (size_t n = 0; n < samples.count(); ++n) {
    float p[kClasses];
    Predict(w, &samples.pixels[n * kPixels], p);
    right += static_cast<size_t>(std::max_element(p, p + kClasses) - p) == samples.labels[n];
  }
  return static_cast<double>(right) / static_cast<double>(samples.count());
}

cairn::Status Train(const Flags& flags) {
  auto train = mnist::Load(flags.data, "train");
  if (!train.ok()) return train.status();
  auto options = cairn::ClientOptions::FromEnvironment();
  if (!options.ok()) return options.status();
  auto connected = cairn::Client::Connect(*options);
  if (!connected.ok()) return connected.status();
  cairn::Client& client = **connected;

  const cairn::Mode mode = flags.mode == "sync" ? cairn::Mode::kSync : cairn::Mode::kAsync;
  const cairn::Optimizer sgd = cairn::Optimizer::Sgd({.lr = flags.lr});
  auto table = client.CreateDense(sgd.For({.name = "softmax", .mode = mode, .size = kParameters}));
  if (!table.ok()) return table.status();

  std::vector<float> weights(kParameters), gradient(kParameters);
  if (auto s = table->Pull(weights).Wait(); !s.ok()) return s;
  // This worker's share: every world_size-th sample, as many for each worker, so that all of them
  // make the same number of steps.
  const size_t samples = flags.limit == 0 ? train->count() : std::min(flags.limit, train->count());
  const size_t share = samples / client.world_size();
  if (share == 0) return {cairn::Code::kInvalidArgument, "fewer samples than workers: raise --limit"};
  std::vector<uint32_t> mine(share);
  for (size_t i = 0; i < share; ++i) mine[i] = static_cast<uint32_t>(i * client.world_size() + client.rank());
  const size_t steps = (share + flags.batch - 1) / flags.batch;
  const cairn::PushPullOptions push{.hyper = sgd.hyper};
  // In sync mode a step is a round, so a worker that was restarted goes on at the step of the others.
  size_t begin_at = 0;
  if (mode == cairn::Mode::kSync) {
    auto round = table->round();
    if (!round.ok()) return round.status();
    begin_at = *round;
  }
  int shuffled = 0;
  for (size_t at = begin_at; at < steps * static_cast<size_t>(flags.epochs); ++at) {
    const int epoch = static_cast<int>(at / steps) + 1;
    const size_t step = at % steps;
    for (; shuffled < epoch; ++shuffled) {
      std::mt19937 shuffle(static_cast<uint32_t>((shuffled + 1) * 1000 + static_cast<int>(client.rank())));
      std::shuffle(mine.begin(), mine.end(), shuffle);
    }
    const size_t begin = step * flags.batch;
    const std::span<const uint32_t> batch(&mine[begin], std::min(flags.batch, share - begin));
    const float loss = Gradient(weights, *train, batch, gradient);
    if (auto s = table->PushPull(gradient, weights, push).Wait(); !s.ok()) return s;
    if (step == 0 || (step + 1) % 100 == 0 || step + 1 == steps) {
      std::printf("epoch: %d step: %zu, loss is %.6f\n", epoch, step + 1, loss);
      std::fflush(stdout);
    }
  }
  if (auto s = client.Barrier(); !s.ok()) return s;  // everybody's updates are in
  if (client.rank() == 0) {
    auto test = mnist::Load(flags.data, "t10k");
    if (!test.ok()) return test.status();
    if (auto s = table->Pull(weights).Wait(); !s.ok()) return s;
    std::printf("test accuracy: %.4f\n", Accuracy(weights, *test));
    std::fflush(stdout);
  }
  return client.Finish();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Trains softmax regression on MNIST, one worker of a Cairn job. Start it with `cairn run`."};
  Flags flags;
  app.add_option("--data", flags.data, "Folder with the four IDX files (script/fetch-mnist)")->required();
  app.add_option("--mode", flags.mode, "sync or async")
      ->check(CLI::IsMember({"sync", "async"}))
      ->capture_default_str();
  app.add_option("--epochs", flags.epochs, "Passes over the data")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--batch", flags.batch, "Samples a step and worker")
      ->check(CLI::Range(1, 60000))
      ->capture_default_str();
  app.add_option("--lr", flags.lr, "Learning rate")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--limit", flags.limit, "Use only so many training samples (0: all)")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const cairn::Status status = Train(flags);
  if (!status.ok()) {
    std::fprintf(stderr, "softmax_mnist: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
