"""The picture for the docs: the share of its limit that each path reaches; training beside peers."""
import statistics

OURS, GOAL, PEER, PLAIN = "#2a6f97", "#c1121f", "#b0b8bf", "#6c757d"


def draw(path, results, rows):
    """Writes an SVG (or what the name's end says). Needs matplotlib; ImportError without."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = ("dense", "sparse", "optimizers")
    shares = [row for row in rows if row.ratio is not None and row.group in groups]
    models = results.get("models", {}).get("ctr", {})
    panels = [(_shares, shares)] if shares else []
    panels += [(_models, (models, results.get("peers", {}).get("paddle", {})))] if models else []
    if not panels:
        return False
    heights = [max(2.0, 0.27 * len(shares)) if one is _shares else 3.0 for one, _ in panels]
    figure, axes = pyplot.subplots(len(panels), 1, figsize=(9, sum(heights) + 1.2),
                                   height_ratios=heights, squeeze=False, layout="constrained")
    for (draw_one, data), axis in zip(panels, axes[:, 0]):
        draw_one(axis, data)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    figure.savefig(path, metadata={"Date": None} if str(path).endswith(".svg") else None)
    pyplot.close(figure)
    return True


def _shares(axis, rows):
    places = range(len(rows))
    axis.barh(places, [row.ratio for row in rows], color=OURS, height=0.7)
    for place, row in zip(places, rows):
        bounds = [goal.bound for goal in row.goals if goal.text == "of limit"]
        axis.text(max([row.ratio, *bounds]) + 0.01, place, f"{row.ratio:.2f} of {row.limit_name}",
                  va="center", fontsize=8)
        for bound in bounds:
            axis.plot([bound] * 2, [place - 0.45, place + 0.45], color=GOAL, lw=2)
    axis.plot([], [], color=GOAL, lw=2, label="goal")
    axis.set_yticks(places, [row.work for row in rows], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlim(0, max(1.35, *(row.ratio + 0.35 for row in rows)))
    axis.axvline(1.0, color=PLAIN, lw=1, ls=":")
    title = "share of the machine's limit, measured in the same run"
    axis.set_title(title, fontsize=10, loc="left")
    axis.legend(frameon=False, fontsize=8, loc="lower right")


def _models(axis, data):
    """Groups of bars: each MLP, one process and two; against plain torch in one process."""
    models, paddle = data
    bars, ticks, place = [], [], 0.0
    for mlp, found in models.items():
        plain = statistics.median(found["plain"])
        others = paddle.get(mlp, {})
        shapes = {"1 × 1": (("Cairn", "async1", OURS, found),
                            ("Paddle async", "async 1x1", PEER, others),
                            ("Paddle GEO", "geo 1x1", PEER, others)),
                  "2 × 2": (("Cairn", "async2", OURS, found),
                            ("Cairn, 1 copy", "single2", OURS, found),
                            ("DDP gloo", "ddp2", PEER, found),
                            ("Paddle async", "async 2x2", PEER, others))}
        for shape, ways in shapes.items():
            first = place
            for name, way, color, source in ways:
                if source.get(way):
                    bars.append((place, statistics.median(source[way]) / plain, name, color))
                    place += 1
            if place > first:
                ticks.append(((first + place - 1) / 2, f"MLP {mlp}, {shape}"))
                place += 0.8
    axis.bar([bar[0] for bar in bars], [bar[1] for bar in bars], color=[bar[3] for bar in bars],
             width=0.85)
    for at, value, name, _ in bars:
        axis.text(at, value + 0.02, f"{value:.2f}\n{name}", ha="center", va="bottom", fontsize=6.5)
    axis.axhline(1.0, color=PLAIN, lw=1, ls=":")
    axis.set_xticks([tick[0] for tick in ticks], [tick[1] for tick in ticks], fontsize=8)
    axis.set_ylim(0, 1.3 * max([1.0, *(bar[1] for bar in bars)]))
    title = "click model, samples/s of all workers, against plain torch in one process, one thread"
    axis.set_title(title, fontsize=10, loc="left")
