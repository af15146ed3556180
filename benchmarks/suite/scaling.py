"""The curve of bench_scale as a picture: how many times the rate of one shard thread (or server).

    python -m suite.scaling scale.json scale.svg [--way threads]     in benchmarks/
"""
import argparse
import json
import pathlib
import sys

FIGURES = {  # id of bench_scale: what it is called, its line
    "sparse_pull_sgd": ("sparse pull", "#2a6f97", "o-"),
    "sparse_push_sgd": ("sparse push", "#2a6f97", "s--"),
    "dense_push_4mb_sgd": ("dense push 4 MB", "#c1121f", "o-"),
    "dense_push_16mb_sgd": ("dense push 16 MB", "#c1121f", "s--"),
    "dense_push_pull_4mb_sgd": ("dense push+pull 4 MB", "#e09f3e", "o-"),
    "dense_pull_4mb_sgd": ("dense pull 4 MB", "#6c757d", "o-"),
}


def draw(found, way, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    counts = sorted({point["count"] for point in found["points"] if point["way"] == way})
    figure, axis = pyplot.subplots(figsize=(6.5, 4.5), layout="constrained")
    axis.plot(counts, counts, color="#b0b8bf", lw=1, ls=":", label="as many times")
    for name, (what, color, line) in FIGURES.items():
        points = sorted((point["count"], point["times_first"], point["value"]) for point in found["points"]
                        if point["way"] == way and point["figure"] == name)
        if points:
            unit = "M keys/s" if name.startswith("sparse") else "GB/s"
            axis.plot([point[0] for point in points], [point[1] for point in points], line, color=color,
                      label=f"{what}: {points[0][2]:.1f} → {points[-1][2]:.1f} {unit}")
    axis.set_xticks(counts)
    axis.set_ylim(bottom=0)
    axis.set_xlabel(f"{'shard threads' if way == 'threads' else way}, and as many workers")
    axis.set_ylabel("times the rate of one")
    axis.set_title(f"{found['cores']} cores, shared memory", fontsize=10, loc="left")
    axis.legend(frameon=False, fontsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=pathlib.Path, help="what bench_scale --json wrote")
    parser.add_argument("picture", type=pathlib.Path, help=".svg or .png")
    parser.add_argument("--way", choices=("threads", "servers"), default="threads")
    options = parser.parse_args()
    found = json.loads(options.json.read_text())
    if not any(point["way"] == options.way for point in found["points"]):
        print(f"{options.json} has no points of '{options.way}': bench_scale --ways {options.way}", file=sys.stderr)
        return 2
    try:
        draw(found, options.way, options.picture)
    except ImportError:
        print("no matplotlib (.venv/bin/pip install -r script/requirements-demo.txt)", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
