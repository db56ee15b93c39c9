"""What happens in a training step."""

from __future__ import annotations

from rl_training.algorithms.config import OffPolicyConfig
from rl_training.runtime.trainer import Session


def updates_due(step: int, before: int, config: OffPolicyConfig) -> int:
    """Updates owed for the transitions collected in (before, step].

    `gradient_updates_per_step` updates for every `train_frequency` transitions after
    `learning_starts`.
    """

    def owed(at: int) -> int:
        periods = max(0, at - config.learning_starts) // config.train_frequency
        return periods * config.gradient_updates_per_step

    return owed(step) - owed(before)


def run_online(session: Session) -> None:
    """Collect, update, look after the run; until the budget is spent or a stop is requested."""
    state = session.state
    config = session.algorithm.config
    assert isinstance(config, OffPolicyConfig)
    for callback in session.callbacks:
        callback.on_start(session)
    collector = session.collector

    def ask() -> None:
        session.algorithm.explore_at(state.step)
        collector.ask(random=state.step < config.learning_starts)

    while not state.should_stop:
        before = state.step
        if not session.schedule.is_constant:
            session.algorithm.scale_learning_rates(session.schedule.factor(before))
        if not collector.explorer.asked:
            ask()
        state.step += collector.step(before)
        if collector.explorer.lag:  # before this step's updates: they run while environments step
            ask()
        session.engine.run(updates_due(state.step, before, config))
        session.after_step(before)
    if session.checkpoints.last_step != state.step:  # a signal came after the step's save
        session.save()
    for callback in session.callbacks:
        callback.on_end(session)
