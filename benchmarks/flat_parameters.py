"""Compare one flat vector per network with one parameter per layer in a critic update.

The products are the same; the optimizer, the Polyak update and the overhead around them differ.
Both are measured in interleaved rounds.

    python -m benchmarks.flat_parameters --device cpu --threads 1
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.describe import describe
from rl_training.algorithms.base import polyak_update
from rl_training.algorithms.optimizers import FlatAdam
from rl_training.models import EnsembleCritic

ROWS, OBS, ACT = 256, 17, 6


def flat_step(critic: EnsembleCritic, x: Tensor, y: Tensor) -> Callable[[], None]:
    """Return the step of the package: one vector, one fused Adam, one lerp."""
    target = critic.flat.detach().clone()
    optimizer = FlatAdam(critic.flat, 3e-4).to(x.device)

    def step() -> None:
        loss = (critic(x).squeeze(-1) - y).square().mean(-1).sum(-1)
        (gradient,) = torch.autograd.grad(loss, critic.flat)
        optimizer.step(critic.flat, gradient)
        polyak_update(target, critic.flat, 0.005)

    return step


def layered_step(critic: EnsembleCritic, x: Tensor, y: Tensor) -> Callable[[], None]:
    """Return a step with one parameter per layer, PyTorch's fused Adam and a foreach lerp."""
    layers = [view.detach().clone().requires_grad_() for view in critic.views(critic.flat)]
    targets = [layer.detach().clone() for layer in layers]
    optimizer = torch.optim.Adam(layers, lr=3e-4, fused=True)

    def step() -> None:
        hidden = x.expand(layers[0].shape[0], -1, -1)
        for i in range(0, len(layers) - 2, 2):
            hidden = torch.baddbmm(layers[i + 1], hidden, layers[i]).relu_()
        q = torch.baddbmm(layers[-1], hidden, layers[-2]).squeeze(-1)
        loss = (q - y).square().mean(-1).sum(-1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(targets, layers, 0.005)

    return step


def speed(step: Callable[[], None], repeats: int, device: str) -> float:
    """Return steps per second."""
    began = time.perf_counter()
    for _ in range(repeats):
        step()
    if device != "cpu":
        torch.cuda.synchronize()
    return repeats / (time.perf_counter() - began)


def main() -> None:
    """Measure both in turn."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=1, help="number of threads")
    parser.add_argument("--rounds", type=int, default=9, help="number of rounds")
    parser.add_argument("--repeats", type=int, default=100, help="number of repetitions")
    parser.add_argument("--out", type=Path, default=None, help="file to write the record to")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    record: dict[str, object] = describe() | {"device": args.device, "threads": args.threads}
    for critics in (2, 10):
        critic = EnsembleCritic(OBS, ACT, (256, 256), critics).to(args.device)
        x = torch.randn(ROWS, OBS + ACT, device=args.device)
        y = torch.randn(critics, ROWS, device=args.device)
        steps = {"flat": flat_step(critic, x, y), "layered": layered_step(critic, x, y)}
        rates: dict[str, list[float]] = {name: [] for name in steps}
        for step in steps.values():
            speed(step, args.repeats // 4, args.device)
        for _ in range(args.rounds):
            for name, step in steps.items():
                rates[name].append(speed(step, args.repeats, args.device))
        ratios = [a / b for a, b in zip(rates["flat"], rates["layered"], strict=True)]
        for name, values in rates.items():
            print(f"{critics:3d} critics  {name:8s} {statistics.median(values):8.1f} steps/s")
        spread = f"{min(ratios):.3f}-{max(ratios):.3f}"
        print(f"  flat / layered {statistics.median(ratios):.3f} ({spread})")
        record[f"{critics}_critics"] = rates
    if args.out:
        args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
