"""Time only the matrix products that one update of SAC, REDQ or FlashSAC needs.

The list below contains every product of the losses at its true shape (HalfCheetah: 17 observations,
6 actions; batch 256, two critics by default, two hidden layers of 256) and none that the losses do
not need: no gradient of replayed inputs, no critic weight gradient from the actor's loss, and
there only the action columns of the critics' input gradient. All critics' gradients are dense.
Each product runs the faster way (one ``bmm``, or one ``mm`` per critic) on warm operands.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import torch

Call = Callable[[], None]
OBS, ACT, BATCH, HIDDEN = 17, 6, 256, 256
ACTOR = [OBS, HIDDEN, HIDDEN, 2 * ACT]
CRITIC = [OBS + ACT, HIDDEN, HIDDEN, 1]


class Product(NamedTuple):
    """``copies`` products [m, k] x [k, n]; ``layout`` says which operand is transposed."""

    copies: int
    m: int
    k: int
    n: int
    layout: str = "nn"


def forward(copies: int, sizes: list[int], rows: int = BATCH) -> list[Product]:
    """The products of a network's forward pass: x w."""
    return [Product(copies, rows, k, n) for k, n in pairwise(sizes)]


def weight_gradients(copies: int, sizes: list[int], rows: int = BATCH) -> list[Product]:
    """The gradients of all weights: x^T g."""
    return [Product(copies, k, rows, n, "tn") for k, n in pairwise(sizes)]


def input_gradients(copies: int, sizes: list[int], rows: int = BATCH) -> list[Product]:
    """The gradients of every layer's input: g w^T."""
    return [Product(copies, rows, n, k, "nt") for k, n in pairwise(sizes)]


def critic_products(critics: int = 2, target_critics: int = 2) -> list[Product]:
    """Return every product of one critic update: target, loss, gradient.

    REDQ's target needs only the two critics of its subset.
    """
    target = forward(1, ACTOR) + forward(target_critics, CRITIC)
    return (
        target
        + forward(critics, CRITIC)
        + weight_gradients(critics, CRITIC)
        + input_gradients(critics, CRITIC[1:])
    )


def actor_products(critics: int = 2) -> list[Product]:
    """Return every product of one actor update, with all critics."""
    return (
        forward(1, ACTOR)
        + forward(critics, CRITIC)
        + input_gradients(critics, [ACT, HIDDEN, HIDDEN, 1])
        + weight_gradients(1, ACTOR)
        + input_gradients(1, ACTOR[1:])
    )


def update_products(critics: int = 2, critic_updates: int = 1) -> list[Product]:
    """Return every product of one update; several critic updates share one actor update."""
    return critic_products(critics) * critic_updates + actor_products(critics)


FLASH_BATCH = 512
FLASH_ACTOR = [OBS, 128, 512, 128, 512, 128, 2 * ACT]
FLASH_CRITIC = [OBS + ACT, 256, 1024, 256, 1024, 256, 101]


def flash_products(critics: int = 2, critic_updates: int = 2) -> list[Product]:
    """Return every product of FlashSAC's updates, with one actor update.

    Critics are evaluated on s and s' as one batch. All rows have gradients, because their
    statistics are shared, and so have the inputs, because their normalization is learned.
    """
    rows, both = FLASH_BATCH, 2 * FLASH_BATCH
    critic = (
        forward(1, FLASH_ACTOR, rows)
        + forward(2 * critics, FLASH_CRITIC, both)
        + weight_gradients(critics, FLASH_CRITIC, both)
        + input_gradients(critics, FLASH_CRITIC, both)
    )
    actor = (
        forward(1, FLASH_ACTOR, both)
        + forward(critics, FLASH_CRITIC, rows)
        + input_gradients(critics, [ACT, *FLASH_CRITIC[1:]], rows)
        + weight_gradients(1, FLASH_ACTOR, both)
        + input_gradients(1, FLASH_ACTOR, both)
    )
    return critic * critic_updates + actor


def flops(products: list[Product]) -> int:
    """Return floating-point operations; a multiply-add counts as two."""
    return sum(2 * p.copies * p.m * p.k * p.n for p in products)


@cache
def operand(copies: int, rows: int, columns: int, role: str) -> torch.Tensor:
    """Return a random operand, shared by products of one shape to keep the caches warm."""
    del role
    return torch.randn(copies, rows, columns)


def prepare(product: Product) -> Call:
    """Return the faster way to run the product: one ``bmm``, or one ``mm`` per matrix."""
    copies, m, k, n, layout = product
    a = operand(copies, k, m, "a").mT if layout == "tn" else operand(copies, m, k, "a")
    b = operand(copies, n, k, "b").mT if layout == "nt" else operand(copies, k, n, "b")
    out = operand(copies, m, n, "out")
    triples = list(zip(a, b, out, strict=True))

    def batched() -> None:
        torch.bmm(a, b, out=out)

    def separate() -> None:
        for x, y, z in triples:
            torch.mm(x, y, out=z)

    return max((batched, separate), key=lambda call: rate([call], 20, 5))


def rate(calls: list[Call], passes: int, chunks: int) -> float:
    """Return passes over ``calls`` per second, the median of ``chunks`` timings after a warm-up."""
    rates = []
    for _ in range(chunks + 1):
        start = time.perf_counter()
        for _ in range(passes):
            for call in calls:
                call()
        rates.append(passes / (time.perf_counter() - start))
    return statistics.median(rates[1:])


def main() -> None:
    """Time with one thread and with torch's default; print both and the faster one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--passes", type=int, default=20, help="updates in one timing")
    parser.add_argument(
        "--chunks", type=int, default=9, help="number of timings, of which the median is used"
    )
    args = parser.parse_args()
    products = update_products()
    large = Product(1, 2048, 2048, 2048)
    by_threads = {}
    for threads in sorted({1, torch.get_num_threads()}):
        torch.set_num_threads(threads)
        calls = [prepare(product) for product in products]
        updates = rate(calls, args.passes, args.chunks)
        by_threads[threads] = {
            "updates_per_second": updates,
            "gflops": updates * flops(products) / 1e9,
            "large_gflops": rate([prepare(large)], 2, 5) * flops([large]) / 1e9,
        }
    best = max(by_threads, key=lambda threads: by_threads[threads]["updates_per_second"])
    result = {"products": len(products), "mflop_per_update": flops(products) / 1e6}
    print(json.dumps(result | {"threads": best, "by_threads": by_threads} | by_threads[best]))


if __name__ == "__main__":
    main()
