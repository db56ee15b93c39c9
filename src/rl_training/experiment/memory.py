"""Check that a run fits into memory, from its config and before anything is allocated.

The estimate is a lower bound: it leaves out what depends on the allocator, the compiler or the
environment. A run that is rejected would have failed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.config import AlgorithmConfig, CollectionConfig, NetworkedConfig
from rl_training.algorithms.registry import CustomEntry, get_algorithm
from rl_training.config_model import Trait, keys_with
from rl_training.data.frames import FrameLayout
from rl_training.data.rows import RowLayout
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.machine import available_memory
from rl_training.experiment.plain_values import tuples_to_lists
from rl_training.models import Network
from rl_training.models.network_config import CustomTrunkConfig
from rl_training.text import shown
from rl_training.types import EnvSpec

FLOAT_BYTES = 4
"""Size of a number: networks, optimizers, replay and batches are float32."""

WORKER_BYTES = 4 << 20
"""Lower bound on the memory of a process with `vectorization: async`."""


@dataclass(frozen=True)
class MemoryNeed:
    """Lower bound on the memory of one part of a run, and the keys that determine it."""

    keys: str
    part: str
    size: int


PROCESS_BYTES = 400 << 20
"""Memory of a process that has imported PyTorch and the environment."""


@dataclass(frozen=True)
class MemoryNeeds:
    """Lower bounds on the memory of the parts of a run."""

    data: MemoryNeed
    host: list[MemoryNeed]
    """Parts that are always in the memory of the machine."""
    learner: list[MemoryNeed]
    """Parts that are in the memory of the device."""

    @classmethod
    def of(cls, config: TrainConfig, spec: EnvSpec, rows: int = 0) -> MemoryNeeds:
        """Return the needs of a run; its dataset has ``rows`` rows."""
        parts = config.parts
        settings, source = parts.algorithm, parts.data.source
        if parts.data.dataset_kind == "random":
            source = f"dataset_size = {rows}"
        host: list[MemoryNeed] = []
        learner = _learner_needs(config, spec)
        if isinstance(settings, CollectionConfig):
            replay, capacity = config.replay_class, settings.buffer_capacity
            size = replay.num_bytes(capacity, spec)
            place = host if replay.on_host else learner
            place.append(MemoryNeed(f"buffer_capacity = {capacity}", "the replay", size))
        if parts.env.vectorization == "async" and config.mode != "offline":
            workers = f"num_envs = {config.num_envs}"
            host.append(
                MemoryNeed(workers, "the environment processes", config.num_envs * WORKER_BYTES)
            )
        return cls(MemoryNeed(source, "the dataset", rows * transition_bytes(spec)), host, learner)

    def on_host(self, device: torch.device) -> int:
        """Return an estimate of the memory of the run's process, without that of a GPU."""
        learner = sum(need.size for need in self.learner) if device.type == "cpu" else 0
        return PROCESS_BYTES + self.data.size + sum(need.size for need in self.host) + learner


def check_memory(config: TrainConfig, spec: EnvSpec, device: torch.device, rows: int = 0) -> None:
    """Reject a run that needs more memory than is available; its dataset has ``rows`` rows."""
    needs = MemoryNeeds.of(config, spec, rows)
    if device.type == "cpu":
        _compare([needs.data, *needs.host, *needs.learner], "this machine", device)
    else:
        _compare([needs.data, *needs.learner], str(device), device)
        _compare([needs.data], "this machine", torch.device("cpu"))
        # After the data was moved to the GPU.
        _compare(needs.host, "this machine", torch.device("cpu"))


def check_population_memory(
    config: TrainConfig, spec: EnvSpec, device: torch.device, members: int, rows: int = 0
) -> None:
    """Reject a population that needs more memory than is available, and say how many would fit."""
    needs = MemoryNeeds.of(config, spec, rows)
    on_host = needs.host if device.type == "cpu" else []
    one = sum(need.size for need in (needs.data, *needs.learner, *on_host))
    available = available_memory(device)
    if one * members <= available:
        return
    place = "this machine" if device.type == "cpu" else str(device)
    raise ConfigError(
        f"A population of {members} runs would need at least {_gib(one * members)}, but {place} "
        f"has {_gib(available)} of memory, which is enough for {available // one}. Use fewer seeds "
        "or smaller values, or limit the runs that train together with members (--members)."
    )


def _compare(needs: list[MemoryNeed], place: str, device: torch.device) -> None:
    available, total = available_memory(device), sum(need.size for need in needs)
    if total <= available:
        return
    most = max(needs, key=lambda need: need.size)
    whole = "" if most.size > available else f", and the whole run {_gib(total)}"
    raise ConfigError(
        f"{most.keys}: {most.part} would need at least {_gib(most.size)}{whole}, but {place} has "
        f"{_gib(available)} of memory. Use smaller values."
    )


def transition_bytes(spec: EnvSpec) -> int:
    """Return the size of a stored transition, with a frame of each image."""
    images = FrameLayout.of(spec.entries)
    return RowLayout.of(spec).width * FLOAT_BYTES + (images.frame_size if images else 0)


def _learner_needs(config: TrainConfig, spec: EnvSpec) -> list[MemoryNeed]:
    """Return the memory of networks, optimizers and an update."""
    row = (2 * spec.obs_dim + spec.action_width + 3) * FLOAT_BYTES  # of a batch
    settings = config.parts.algorithm
    size, keys = settings.batch_size, _values(settings, Trait.UPDATE_SIZE)
    least = (spec.obs_dim + spec.action_dim) * 4 * FLOAT_BYTES  # with gradient and moments
    if least > available_memory(torch.device("cpu")):  # too large even for meta tensors
        return [
            MemoryNeed(f"env_id = {shown(config.env_id)}", "a network layer for its spaces", least)
        ]
    learner = plan_learner(config, spec)
    if learner is None:
        return [MemoryNeed(keys, "a batch", size * row)]
    fields = learner.update_noise(size).values()
    noise = sum(math.prod(field.shape) for field in fields) * FLOAT_BYTES
    update = size * row + noise + _backward_bytes(learner, size)
    networks = MemoryNeed(
        _values(settings, Trait.NETWORK_SIZE), "the learner", learner_bytes(learner)
    )
    return [networks, MemoryNeed(keys, "an update", update)]


def plan_learner(config: TrainConfig, spec: EnvSpec) -> Algorithm | None:
    """Build a run's learner on the meta device; return None if it has custom code."""
    settings = config.parts.algorithm
    trunks = settings.trunks() if isinstance(settings, NetworkedConfig) else {}
    custom_networks = any(isinstance(trunk, CustomTrunkConfig) for trunk in trunks.values())
    # Custom code may read the values of tensors, which meta tensors do not have.
    if custom_networks or isinstance(get_algorithm(config.algo), CustomEntry):
        return None
    with torch.device("meta"):
        return config.learner_class.build(spec, config.parts.algorithm)


def learner_bytes(learner: Algorithm) -> int:
    """Return the size of all tensors of a learner."""
    return sum(tensor.nbytes for tensor in (*learner.parameters(), *learner.buffers()))


def _backward_bytes(learner: Algorithm, batch_size: int) -> int:
    """Return the size of the gradient and activations of the largest network."""
    sizes = [0]
    for network in learner.modules():
        if isinstance(network, Network):
            activations = batch_size * network.trunk.activations * FLOAT_BYTES
            sizes.append(network.flat.nbytes + activations)
    return max(sizes)


def _values(settings: AlgorithmConfig, trait: Trait) -> str:
    """Format the keys of a config that have a trait, with their values."""
    pairs = (
        (key, tuples_to_lists(getattr(settings, key))) for key in keys_with(trait, type(settings))
    )
    return ", ".join(f"{key} = {shown(value)}" for key, value in pairs if value != {})


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"


@contextmanager
def report_out_of_memory(
    part: str, device: torch.device, error_class: type[RLTrainingError] = ConfigError
) -> Iterator[None]:
    """Turn an out-of-memory error into a short error with advice."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # CUDA has its own exception class; a CPU allocation is recognized by its message.
        full = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not full and "allocate" not in str(error):
            raise
        advice = "" if device.type == "cpu" else ", or device=cpu"
        raise error_class(
            f"{part} does not fit into the memory of {device}. Use smaller values{advice}."
        ) from None
