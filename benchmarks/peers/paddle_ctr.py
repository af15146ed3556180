"""The click model of examples/ctr.py on Paddle 2.6.2's parameter server (static graph, fleet), one
process of it; run.py starts them. The environment says who it is (TRAINING_ROLE, PADDLE_*).

    paddle_ctr.py --way async|geo|plain --data FILE --hidden 400 400 400 --steps 150 --warm-up 20

13 floats and 26 ids of a million, rows of 16, batch 512, one thread. Async: Adam, since its servers
have no Adagrad for an MLP. GEO: SGD, the only one that it takes, every 100 steps. `plain`: the same
program without fleet, for its own overhead.
"""
import argparse
import os
import sys
import time

os.environ.setdefault("CPU_NUM", "1")
os.environ.setdefault("FLAGS_call_stack_level", "1")
import numpy as np  # noqa: E402
import paddle  # noqa: E402
import paddle.distributed.fleet as fleet  # noqa: E402

BATCH, FLOATS, FIELDS, IDS, DIM = 512, 13, 26, 1_000_000, 16


def model(hidden, way):
    floats = paddle.static.data("floats", [None, FLOATS], "float32")
    ids = paddle.static.data("ids", [None, 1], "int64")  # 26 of each sample, one after the other
    labels = paddle.static.data("labels", [None, 1], "float32")
    start = paddle.ParamAttr(name="rows", initializer=paddle.nn.initializer.Uniform(-0.05, 0.05))
    if way in ("plain", "geo"):  # GEO keeps the whole table in every worker, too
        rows = paddle.static.nn.embedding(ids, size=[IDS, DIM], is_sparse=True, param_attr=start)
    else:
        rows = paddle.static.nn.sparse_embedding(ids, size=[IDS, DIM], param_attr=start)
    x = paddle.concat([floats, paddle.reshape(rows, [-1, FIELDS * DIM])], axis=1)
    for width in hidden:
        x = paddle.static.nn.fc(x, width, activation="relu")
    out = paddle.static.nn.fc(x, 1)
    loss = paddle.mean(paddle.nn.functional.binary_cross_entropy_with_logits(out, labels))
    return loss


def batches(path, rank, workers):
    """The samples of synthetic_clicks.py, which clicks.py has written: this worker's batches."""
    clicks = np.load(path)
    parts = [clicks[name][rank::workers] for name in ("floats", "ids", "labels")]
    made = []
    for first in range(0, len(parts[0]) - BATCH + 1, BATCH):
        floats, ids, labels = (part[first:first + BATCH] for part in parts)
        made.append({"floats": floats, "ids": ids.reshape(-1, 1), "labels": labels[:, None]})
    return made


def train(options, rank, workers):
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    if options.way != "plain":
        fleet.init_worker()
    program = paddle.static.default_main_program()
    made = batches(options.data, rank, workers)
    for i in range(options.warm_up + options.steps):
        if i == options.warm_up:
            if options.way != "plain":
                fleet.barrier_worker()
            started = time.perf_counter()
        exe.run(program, feed=made[i % len(made)], fetch_list=[])
    seconds = time.perf_counter() - started
    sys.stdout.write(f"samples per second: {options.steps * BATCH / seconds:.1f}\n")
    sys.stdout.flush()
    if options.way != "plain":
        fleet.stop_worker()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=["async", "geo", "plain"], required=True)
    parser.add_argument("--hidden", type=int, nargs="+", default=[400, 400, 400])
    parser.add_argument("--data", required=True, help="an .npz of clicks.py")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--warm-up", type=int, default=20)
    options = parser.parse_args()
    paddle.enable_static()
    if options.way == "plain":
        loss = model(options.hidden, options.way)
        paddle.optimizer.Adagrad(learning_rate=0.02).minimize(loss)
        train(options, 0, 1)
        return
    fleet.init(fleet.PaddleCloudRoleMaker())
    loss = model(options.hidden, options.way)
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    if options.way == "geo":
        strategy.a_sync_configs = {"k_steps": 100}
        inner = paddle.optimizer.SGD(learning_rate=0.02)
    else:
        inner = paddle.optimizer.Adam(learning_rate=0.001)
    fleet.distributed_optimizer(inner, strategy).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
    else:
        train(options, fleet.worker_index(), fleet.worker_num())


if __name__ == "__main__":
    main()
