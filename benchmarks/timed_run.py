"""Train for some seconds and print the speed as a JSON object: our side of a comparison.

`online_cpu.py` and `offline_cpu.py` run it in separate processes. It calls `train`; a callback
starts the clock after a warm-up, in which the engine is prepared, and ends the run.

    python -m benchmarks.timed_run --config td3/halfcheetah --warmup 200 --seconds 10 engine=eager
"""

import argparse
import json
import tempfile
import time
from typing import TYPE_CHECKING, Any

import torch

from rl_training import TrainConfig, train
from rl_training.runtime.callbacks import Callback

if TYPE_CHECKING:
    from rl_training.runtime.session import Session


class Window(Callback):
    """Times the steps of a run for some seconds after the warm-up."""

    def __init__(self, warmup: int, seconds: float) -> None:
        self.warmup, self.seconds = warmup, seconds
        self.first: tuple[int, float] | None = None
        self.result: dict[str, Any] = {}

    def on_step(self, session: "Session") -> None:
        """Start the clock after the warm-up, and stop when the time is over."""
        now, step = time.perf_counter(), session.state.step
        if self.first is None:
            self.first = (step, now) if step >= self.warmup else None
            return
        steps, seconds = step - self.first[0], now - self.first[1]
        if seconds >= self.seconds and not self.result:
            session.state.request_stop("measured")
            self.result = {
                "speed": steps / seconds,
                "steps": steps,
                "seconds": seconds,
                "threads": torch.get_num_threads(),
                "engine": session.engine.mode,
                "preparation_seconds": session.engine.preparation_seconds,
            }


def main() -> None:
    """Train and print the speed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--config", required=True, help="a packaged config")
    parser.add_argument("--warmup", type=int, required=True, help="steps before the clock starts")
    parser.add_argument("--seconds", type=float, required=True, help="duration of each measurement")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    args = parser.parse_args()
    window = Window(args.warmup, args.seconds)
    with tempfile.TemporaryDirectory() as folder:
        fixed = [f"output_dir={folder}", "total_timesteps=100_000_000", "device=cpu"]
        fixed += ["eval_interval=0", "eval_episodes=0"]
        train(TrainConfig.load(args.config, [*fixed, *args.overrides]), callbacks=[window])
    print(json.dumps(window.result))


if __name__ == "__main__":
    main()
