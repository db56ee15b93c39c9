"""What the members of a population do together, besides updates: collecting and evaluating."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rl_training.envs.pool import WorkerPool
from rl_training.errors import RLTrainingError
from rl_training.runtime.population.collection import NotShareable, PopulationCollection
from rl_training.runtime.population.engine import PopulationEngine
from rl_training.runtime.population.evaluation import PopulationEvaluation
from rl_training.runtime.population.policies import PopulationPolicy
from rl_training.runtime.session import Session
from rl_training.text import first_line
from rl_training.types import FloatArray


class SharedParts:
    """Worker processes in which the environments of all members step, if they can be shared.

    Otherwise, every member steps its own environments.
    """

    def __init__(self, engine: PopulationEngine, sessions: Sequence[Session]) -> None:
        self._engine = engine
        self._sessions = list(sessions)
        self._rows = engine.rows_of_members
        self._pool: WorkerPool | None = None
        self._collection: PopulationCollection | None = None
        self._evaluation: PopulationEvaluation | None = None

    def start(self, processes: int, *, pin: bool, say: Callable[[str], None]) -> None:
        """Start the processes, each bound to a core with ``pin``.

        ``say`` gets a message if the environments cannot be shared.
        """
        if processes < 1:
            return
        try:
            self._pool = WorkerPool(processes, pin=pin)
            self._share_environments(self._pool)
        except (NotShareable, RLTrainingError, OSError) as error:
            say(f"every run steps its own environments, because {first_line(error)}")
            self.close()

    def _share_environments(self, pool: WorkerPool) -> None:
        fast = self._engine.mode == "cuda_graph"
        collectors = [each.collector for each in self._sessions if each.collector is not None]
        if len(collectors) == len(self._sessions):
            self._collection = PopulationCollection(collectors, pool, self._engine, fast=fast)
        evaluators = [each.evaluator for each in self._sessions if each.evaluator is not None]
        spec = self._sessions[0].policy.spec
        plain = not (spec.action_masks or spec.obs_dtype != np.float32 or spec.entries)
        if len(evaluators) == len(self._sessions) and plain:
            episodes = self._sessions[0].settings.eval_episodes
            self._evaluation = PopulationEvaluation(
                evaluators, spec, episodes, pool, self._make_policy
            )

    def _make_policy(self, num_obs: int) -> Callable[[FloatArray], FloatArray]:
        engine, rows = self._engine, self._rows
        fast = engine.mode == "cuda_graph"
        policy = PopulationPolicy(engine.learners, engine.state, num_obs, fast=fast)
        obs = np.zeros((len(engine.learners), num_obs, self._sessions[0].policy.spec.obs_dim))

        def act(own: FloatArray) -> FloatArray:
            obs[rows] = own
            return policy(obs)[rows]

        return act

    def begin_turn(self, rows: Sequence[int]) -> None:
        """Note the members that were updated, and that may now evaluate."""
        if self._evaluation is not None:
            self._evaluation.begin(row for row in rows if _evaluates(self._sessions[row]))

    def collect(self, rows: Sequence[int]) -> None:
        """Take a step in the environments of some members, which they finish next."""
        if self._collection is not None and rows:
            self._collection.collect(rows)

    def end_turn(self) -> None:
        """Choose the actions that were requested for the next step."""
        if self._collection is not None:
            self._collection.choose_actions()

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.close()
        self._pool = self._collection = self._evaluation = None


def _evaluates(session: Session) -> bool:
    """Return whether a session evaluates after its current step."""
    settings, step = session.settings, session.state.step
    stride = 1 if session.collector is None else session.collector.num_envs
    is_due = settings.eval_interval > 0 and step % settings.eval_interval < stride
    return step > settings.first_step and (is_due or step >= settings.total_timesteps)
