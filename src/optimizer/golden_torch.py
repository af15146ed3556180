"""Writes golden_torch.inc: what torch.optim makes of a few steps, for golden_torch_test.cc.

    python3 -m venv venv && venv/bin/pip install torch==2.13.0 numpy
    venv/bin/python src/optimizer/golden_torch.py

Each case is an optimizer with its arguments, four elements, six steps with gradients of different
sizes and a learning rate that changes; the file has the values after every step and the state
after the last one. The plain loops of torch are used (ATEN_CPU_CAPABILITY), whose operations are
not fused. Our results differ from these by the rounding of square roots alone: torch's are not
always the nearest number.

SparseAdam, and Adagrad where the case says `sparse`, are given sparse gradients: what an Embedding
with sparse=True makes."""
import os
import pathlib

os.environ["ATEN_CPU_CAPABILITY"] = "default"

import torch  # noqa: E402  (after the line above, which it reads)

FLAGS = {"momentum": "kWithMomentum", "nesterov": "kNesterov", "amsgrad": "kAmsgrad",
         "centered": "kCentered", "maximize": "kMaximize"}
START = [0.5, -1.25, 2.0, 0.003]
STEPS = 6
SGD, ADAGRAD, ADAM = torch.optim.SGD, torch.optim.Adagrad, torch.optim.Adam
ADAMW, RMSPROP = torch.optim.AdamW, torch.optim.RMSprop
SPARSE_ADAM = torch.optim.SparseAdam
CASES = [
    (SGD, dict(lr=0.1)),
    (SGD, dict(lr=0.1, weight_decay=0.01)),
    (SGD, dict(lr=0.1, momentum=0.9)),
    (SGD, dict(lr=0.1, momentum=0.9, dampening=0.25, weight_decay=0.01)),
    (SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
    (SGD, dict(lr=0.1, momentum=0.9, maximize=True)),
    (ADAGRAD, dict(lr=0.05)),
    (ADAGRAD, dict(lr=0.05, lr_decay=0.1, weight_decay=0.02, eps=1e-6,
                   initial_accumulator_value=0.5)),
    (ADAGRAD, dict(lr=0.05, maximize=True)),
    (ADAM, dict(lr=0.01)),
    (ADAM, dict(lr=0.01, betas=(0.8, 0.95), weight_decay=0.1, eps=1e-5)),
    (ADAM, dict(lr=0.01, betas=(0.3, 0.4), amsgrad=True)),
    (ADAM, dict(lr=0.01, amsgrad=True, weight_decay=0.1, maximize=True)),
    (ADAMW, dict(lr=0.01)),
    (ADAMW, dict(lr=0.01, weight_decay=0.2, amsgrad=True, betas=(0.9, 0.5))),
    (ADAMW, dict(lr=0.01, weight_decay=0.0, maximize=True)),
    (RMSPROP, dict(lr=0.01)),
    (RMSPROP, dict(lr=0.01, alpha=0.9, weight_decay=0.1)),
    (RMSPROP, dict(lr=0.01, momentum=0.9)),
    (RMSPROP, dict(lr=0.01, centered=True)),
    (RMSPROP, dict(lr=0.01, alpha=0.4, centered=True, momentum=0.5, weight_decay=0.1,
                   maximize=True)),
    (SPARSE_ADAM, dict(lr=0.01)),
    (SPARSE_ADAM, dict(lr=0.01, betas=(0.8, 0.95), eps=1e-5, maximize=True)),
    (ADAGRAD, dict(sparse=True, lr=0.05, lr_decay=0.1, eps=1e-6, initial_accumulator_value=0.5)),
]
STATE = {"SGD": ["momentum_buffer"], "Adagrad": ["sum"],
         "Adam": ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"],
         "AdamW": ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"],
         "SparseAdam": ["exp_avg", "exp_avg_sq"],
         "RMSprop": ["square_avg", "momentum_buffer", "grad_avg"]}


def doubles(values):
    return "{" + ", ".join(repr(float(value)) for value in values) + "}"


def floats(tensor):
    return "{" + ", ".join(format(value, ".9g") for value in tensor.tolist()) + "}"


def gradients():
    torch.manual_seed(7)
    return [torch.randn(len(START)) * 10.0 ** (step % 4 - 2) for step in range(STEPS)]


def rows(tensors):
    return ["  {" + ",\n   ".join(floats(tensor) for tensor in tensors) + "},"]


def run(kind, arguments):
    """The case as lines of C++."""
    name = kind.__name__
    said = ", ".join(f"{key}={value}" for key, value in arguments.items())
    arguments = dict(arguments)
    sparse = arguments.pop("sparse", False) or kind is SPARSE_ADAM
    if kind is not SPARSE_ADAM:
        arguments["foreach"] = False
    parameter = torch.nn.Parameter(torch.tensor(START))
    optimizer = kind([parameter], **arguments)
    group = optimizer.param_groups[0]
    betas = group.get("betas", (group.get("momentum", 0.0), group.get("alpha", 0.0)))
    hyper = [arguments["lr"], group.get("weight_decay", 0.0), betas[0], betas[1], group.get("eps", 0.0),
             group.get("lr_decay", group.get("dampening", 0.0))]
    flags = [FLAGS[key] for key in FLAGS if group.get(key)]
    values = []
    for step, gradient in enumerate(gradients()):
        group["lr"] = arguments["lr"] / (1 + step % 3)
        parameter.grad = gradient.to_sparse() if sparse else gradient
        optimizer.step()
        values.append(parameter.detach().clone())
    state = optimizer.state[parameter]
    columns = [state[key] for key in STATE[name] if isinstance(state.get(key), torch.Tensor)]
    word = name if name in ("AdamW", "SparseAdam") else name.capitalize()
    initial = float(arguments.get("initial_accumulator_value", 0.0))
    return [f' {{"{name}({said})",',
            f'  OptimizerKind::k{word}, {" | ".join(flags) or 0}, {initial}f,',
            f"  {doubles(hyper)},"] + rows(values) + rows(columns) + [" },"]


def main():
    lines = [f"// Made by golden_torch.py with torch {torch.__version__}. Do not edit.",
             "const std::vector<std::vector<float>> kGradients = {"]
    lines += [f" {floats(gradient)}," for gradient in gradients()]
    lines += ["};", "// Step s had the learning rate of the case / (1 + s % 3).",
              f"const std::vector<float> kStart = {floats(torch.tensor(START))};",
              "// Name, kind, flags, initial state; hyper-parameters; values after each step; state columns",
              "// after the last one.",
              "const std::vector<Golden> kGolden = {"]
    for kind, arguments in CASES:
        lines += run(kind, arguments)
    target = pathlib.Path(__file__).with_suffix(".inc")
    target.write_text("\n".join(lines + ["};"]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
