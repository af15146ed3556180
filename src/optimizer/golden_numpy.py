"""Writes golden_numpy.inc: what the optimizers that torch does not have make of a few steps, for
golden_numpy_test.cc. In NumPy and float64, from the papers; nothing of ours is used.

    python3 -m venv venv && venv/bin/pip install numpy
    venv/bin/python src/optimizer/golden_numpy.py

FTRL is FTRL-Proximal as in McMahan et al. 2013, "Ad Click Prediction", algorithm 1: alpha is lr, the
learning rate's power is -0.5. TensorFlow writes the same differently (its l2 is added twice, beta is
part of it); both are computed here, and have to agree.

Row-wise Adagrad is FBGEMM's EXACT_ROWWISE_ADAGRAD without weight decay: one accumulator a row, to
which the mean of the squares is added."""
import pathlib

import numpy as np

START = np.array([0.5, -1.25, 2.0, 0.003, 0.0, 1e-3, -0.75])
STEPS = 6


def gradients():
    rng = np.random.default_rng(7)
    steps = [rng.standard_normal(len(START)) * 10.0 ** (step % 4 - 2) for step in range(STEPS)]
    return [np.float32(step).astype(np.float64) for step in steps]  # exactly what the test reads


def mcmahan(w, z, n, g, lr, beta, l1, l2):
    sigma = (np.sqrt(n + g * g) - np.sqrt(n)) / lr
    z = z + g - sigma * w
    n = n + g * g
    w = np.where(np.abs(z) <= l1, 0.0, -(z - np.sign(z) * l1) / ((beta + np.sqrt(n)) / lr + l2))
    return w, z, n


def tensorflow(w, linear, accum, g, lr, beta, l1, l2):
    """tf.raw_ops.ApplyFtrlV2 with lr_power -0.5, as keras.optimizers.Ftrl calls it."""
    l2 = l2 / 2 + beta / (2 * lr)
    new = accum + g * g
    linear = linear + g - (new ** 0.5 - accum ** 0.5) / lr * w
    quadratic = new ** 0.5 / lr + 2 * l2
    return np.where(np.abs(linear) > l1, (np.sign(linear) * l1 - linear) / quadratic, 0.0), linear, new


def ftrl(lr=0.1, beta=1.0, l1=0.0, l2=0.0, initial=0.0, maximize=False):
    w, z, n = START, np.zeros_like(START), np.full_like(START, initial)
    theirs = (w, z, n)
    values = []
    for step, g in enumerate(gradients()):
        g = -g if maximize else g
        now = lr / (1 + step % 3)
        w, z, n = mcmahan(w, z, n, g, now, beta, l1, l2)
        theirs = tensorflow(*theirs, g, now, beta, l1, l2)
        np.testing.assert_allclose(theirs, (w, z, n), rtol=1e-12, atol=1e-15)
        values.append(w)
    return "Ftrl", maximize, initial, [lr, l2, l1, beta, 0.0, 0.0], values, [z, n]


def rowwise_adagrad(lr=0.1, eps=1e-8, initial=0.0, maximize=False):
    w, total = START, initial
    values = []
    for step, g in enumerate(gradients()):
        total = total + np.mean(g * g)
        w = w - (-1 if maximize else 1) * lr / (1 + step % 3) * g / (np.sqrt(total) + eps)
        values.append(w)
    return "RowwiseAdagrad", maximize, initial, [lr, 0.0, 0.0, 0.0, eps, 0.0], values, [np.array([total])]


CASES = [
    (ftrl, dict()),
    (ftrl, dict(lr=0.05, beta=0.5, l1=0.3, l2=0.2)),
    (ftrl, dict(l1=20.0)),  # more than any z: every weight is 0
    (ftrl, dict(l1=0.01, initial=0.1)),
    (ftrl, dict(beta=0.0, initial=0.1, l2=1.0, maximize=True)),
    (rowwise_adagrad, dict()),
    (rowwise_adagrad, dict(lr=0.05, eps=1e-3, initial=0.5)),
    (rowwise_adagrad, dict(maximize=True)),
]


def floats(array):
    return "{" + ", ".join(format(float(value), ".9g") for value in array) + "}"


def main():
    lines = [f"// Made by golden_numpy.py with NumPy {np.__version__}. Do not edit.",
             "const std::vector<std::vector<float>> kGradients = {"]
    lines += [f" {floats(gradient)}," for gradient in gradients()]
    lines += ["};", "// Step s had the learning rate of the case / (1 + s % 3).",
              f"const std::vector<float> kStart = {floats(START)};",
              "// Name, kind, flags, initial state; hyper-parameters; values after each step; state columns",
              "// after the last one.",
              "const std::vector<Golden> kGolden = {"]
    for optimizer, arguments in CASES:
        said = ", ".join(f"{key}={value}" for key, value in arguments.items())
        kind, maximize, initial, hyper, values, state = optimizer(**arguments)
        lines += [f' {{"{optimizer.__name__}({said})",',
                  f'  OptimizerKind::k{kind}, {"kMaximize" if maximize else 0}, {initial}f,',
                  "  {" + ", ".join(repr(float(x)) for x in hyper) + "},"]
        lines += ["  {" + ",\n   ".join(floats(row) for row in rows) + "}," for rows in (values, state)]
        lines += [" },"]
    target = pathlib.Path(__file__).with_suffix(".inc")
    target.write_text("\n".join(lines + ["};"]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
