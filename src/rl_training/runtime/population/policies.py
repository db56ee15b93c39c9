"""The policies of all members as one program: actions for exploration and for evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from rl_training.algorithms.base import Algorithm, draw_noise
from rl_training.runtime.acting import Explorer
from rl_training.runtime.compilation import Tracer, compile_program
from rl_training.runtime.engine import capture
from rl_training.runtime.held_noise import hold, stack_held
from rl_training.runtime.population.draws import GeneratorTable, can_draw_together
from rl_training.runtime.population.philox import OFFSET, draw
from rl_training.runtime.population.programs import Program, population_program
from rl_training.types import FloatArray, Noise, NoiseSpec


def acting_program(
    learners: Sequence[Algorithm], num_obs: int, noise_spec: NoiseSpec | None
) -> Program:
    """Return the program of `Algorithm.act` for observations ``[S, num_obs, obs_dim]``.

    Its inputs are the observations, the noise, the stacked state and the constants. Without
    ``noise_spec``, actions are deterministic.
    """
    settings = [learner.config.model_dump_json() for learner in learners]
    distinct = dict(zip(settings, learners, strict=True))
    device = learners[0].obs_shift.device
    drawn = draw_noise(noise_spec or {}, torch.Generator(device))
    obs = torch.zeros(num_obs, learners[0].spec.obs_dim, device=device)
    keys = tuple(drawn)

    def trace(learner: Algorithm) -> tuple[fx.GraphModule, list[Tensor], FakeTensorMode]:
        tracer = Tracer(learner)

        def act(own_obs: Tensor, *noise: Tensor) -> list[Tensor]:
            named = None if noise_spec is None else dict(zip(keys, noise, strict=True))
            return [learner.act(own_obs, deterministic=noise_spec is None, noise=named)]

        inputs = [tracer.fake.from_tensor(x) for x in (obs, *drawn.values())]
        return tracer.trace_function(act, inputs), [*inputs, *tracer.state()], tracer.fake

    traces = {key: trace(learner) for key, learner in distinct.items()}
    _, inputs, fake = traces[settings[0]]
    return population_program([traces[key][0] for key in settings], inputs, fake)


class PopulationPolicy:
    """Deterministic actions of all members, for the same number of observations each."""

    def __init__(
        self, learners: Sequence[Algorithm], state: Sequence[Tensor], num_obs: int, *, fast: bool
    ) -> None:
        """Create the program; ``fast`` captures it as a CUDA graph."""
        program = acting_program(learners, num_obs, None)
        device, spec = state[0].device, learners[0].spec
        shape = len(learners), num_obs, spec.obs_dim
        self._host_obs = torch.zeros(shape, pin_memory=fast)
        self._obs = torch.zeros(shape, device=device)
        inputs = [self._obs, *state, program.constants]
        run = _prepared(program.graph, inputs, fast=fast)
        example = run(*inputs)[0]
        self._host_actions = torch.empty(example.shape, dtype=example.dtype, pin_memory=fast)

        def act() -> None:
            self._obs.copy_(self._host_obs, non_blocking=fast)
            self._host_actions.copy_(run(*inputs)[0], non_blocking=fast)

        self._act = capture(act, device=device) if fast else act
        self._device = device

    def __call__(self, obs: FloatArray) -> FloatArray:
        """Return the actions ``[S, num_obs, width]`` for observations ``[S, num_obs, obs_dim]``."""
        self._host_obs.numpy()[:] = obs
        with torch.no_grad():
            self._act()
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        actions: FloatArray = self._host_actions.numpy()
        return actions


class PopulationExplorer:
    """Chooses the exploring actions of all members with one program.

    Every member keeps its `Explorer`, whose generator, held noise and pending actions it saves.
    Actions are those of that explorer, except that the products of a population, and normal
    numbers on a GPU, round differently.
    """

    def __init__(
        self,
        explorers: Sequence[Explorer | None],
        learners: Sequence[Algorithm],
        state: Sequence[Tensor],
        num_envs: int,
        *,
        fast: bool,
    ) -> None:
        """Prepare the program.

        Args:
            explorers: The explorer of each row; None for a placeholder.
            learners: The learners of all rows.
            state: Their stacked state.
            num_envs: Environments of each member.
            fast: Whether to capture the program as a CUDA graph.
        """
        self._explorers = explorers
        first = next(each for each in explorers if each is not None)
        self._fast = fast
        device, spec = state[0].device, learners[0].spec
        self._held: list[Tensor] = []
        self._shares = torch.empty(0, device=device)
        if first.held is not None:
            own = [None if each is None else each.held for each in explorers]
            self._held = stack_held([each or deepcopy(first.held) for each in own])
            self._shares = first.held.shares
        self._drawn_spec = first.noise_spec
        self._spec = learners[0].act_noise(num_envs)
        self._program = acting_program(learners, num_envs, self._spec)
        self._state = list(state)
        shape = len(learners), num_envs, spec.obs_dim
        self._host_obs = torch.zeros(shape, pin_memory=fast)
        self._obs = torch.zeros(shape, device=device)
        self._host_actions = torch.empty(*shape[:2], spec.action_width, pin_memory=fast)
        self._draws_together = fast and can_draw_together(device)
        unused = torch.Generator(device)
        generators = [unused if each is None else each.generator for each in explorers]
        self._table = GeneratorTable(generators) if self._draws_together else None
        self._replay: Callable[[], None] | None = None
        self._run: Callable[..., Any] | None = None
        self._done = torch.cuda.Event() if fast else None  # type: ignore[no-untyped-call]
        self.pending: list[int] = []
        """Members whose actions were chosen, but not collected yet."""

    def choose(self, obs: FloatArray, members: Sequence[int]) -> None:
        """Start choosing the actions of ``members`` for observations ``[S, num_envs, obs_dim]``.

        `collect` returns them. The noise of the other members does not advance.
        """
        self.collect()  # before their actions are overwritten
        self._host_obs.numpy()[:] = obs
        resting = [row for row in range(len(self._explorers)) if row not in members]
        kept = [x[resting].clone() for x in self._held] if resting else []
        with torch.no_grad():
            if self._table is not None:
                self._table.upload()
                self._explore_on_gpu(self._table)
                self._table.advance(len(self._drawn_spec), resting)
            else:
                self._explore(self._draw(members))
        for tensor, rows in zip(self._held, kept, strict=False):
            tensor[resting] = rows
        self.pending = list(members)
        if self._done is not None:
            self._done.record()

    def collect(self) -> None:
        """Give the members whose actions were chosen their actions."""
        if not self.pending:
            return
        if self._done is not None:
            self._done.synchronize()
        actions = self._host_actions.numpy()
        for row in self.pending:
            explorer = self._explorers[row]
            assert explorer is not None
            explorer.receive_actions(actions[row].copy())
        self.pending = []

    def _draw(self, members: Sequence[int]) -> Noise:
        """Draw the noise of ``members`` with their generators, and zeros for the others."""
        rows = [
            draw_noise(self._drawn_spec, each.generator) if each and row in members else None
            for row, each in enumerate(self._explorers)
        ]
        any_drawn = next(row for row in rows if row is not None)
        return {
            key: torch.stack([torch.zeros_like(x) if row is None else row[key] for row in rows])
            for key, x in any_drawn.items()
        }

    def _explore(self, noise: Noise) -> None:
        """Choose actions eagerly, without a graph."""
        self._obs.copy_(self._host_obs)
        inputs = [*noise.values(), *self._inputs]
        if self._run is None:
            self._run = _prepared(self._function(), inputs, fast=self._fast)
        self._host_actions.copy_(self._run(*inputs)[0])

    @property
    def _inputs(self) -> list[Tensor]:
        return [self._obs, self._shares, *self._held, *self._state, self._program.constants]

    def _function(self) -> fx.GraphModule:
        """Return the program from drawn noise and `_inputs` to actions."""
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        noise = draw_noise(self._drawn_spec, torch.Generator(self._obs.device))
        examples = [torch.stack([x] * len(self._explorers)) for x in noise.values()]
        count, held = len(examples), len(self._held)

        def function(*tensors: Tensor) -> list[Tensor]:
            drawn = dict(zip(self._drawn_spec, tensors[:count], strict=True))
            obs, shares, *rest = tensors[count:]
            named: Noise = drawn
            if held:
                remaining, *kept = rest[:held]
                named = hold(drawn, shares, remaining, dict(zip(self._spec, kept, strict=True)))
            return list(self._program.graph(obs, *named.values(), *rest[held:]))

        with torch.no_grad():
            return make_fx(function)(*(fake.from_tensor(x) for x in (*examples, *self._inputs)))

    def _explore_on_gpu(self, table: GeneratorTable) -> None:
        """Choose actions as one graph: transfers, noise and networks."""
        if self._replay is None:
            inner, spec = self._function(), list(self._drawn_spec.values())

            def function(seeds: Tensor, offsets: Tensor, *inputs: Tensor) -> list[Tensor]:
                noise = [
                    draw(field, seeds, offsets + OFFSET * number, torch.float32)
                    for number, field in enumerate(spec)
                ]
                offsets.add_(OFFSET * len(spec))
                return list(inner(*noise, *inputs))

            fake = FakeTensorMode(allow_non_fake_inputs=True)
            inputs = [table.seeds, table.offsets, *self._inputs]
            graph = make_fx(function)(*(fake.from_tensor(x) for x in inputs))
            run = _prepared(graph, inputs, fast=True)

            def act() -> None:
                self._obs.copy_(self._host_obs, non_blocking=True)
                self._host_actions.copy_(run(*inputs)[0], non_blocking=True)

            self._replay = capture(act, device=self._obs.device)
        self._replay()


def _prepared(graph: fx.GraphModule, inputs: list[Tensor], *, fast: bool) -> Callable[..., Any]:
    """Compile a program and load its kernels, without changing the inputs; or return it as is."""
    if not fast:
        return graph
    scratch = [x.clone() for x in inputs]
    with torch.no_grad():
        run = compile_program(graph, scratch)
        run(*scratch)
    return run
