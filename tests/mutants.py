"""Show that a test kills each trap: break the code on purpose, watch a test fail.

    python -m tests.mutants

Each mutant changes one place of a copy of the sources; the named tests must fail on it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SAC = "algorithms/sac.py"
GOLDEN = "tests/test_sac_golden.py"
HER = "data/her.py"
HINDSIGHT = "tests/test_her.py"


@dataclass(frozen=True)
class Mutant:
    """One trap: what it is, where, and the tests that must notice."""

    trap: str
    file: str
    old: str
    new: str
    tests: str = GOLDEN


MUTANTS = [
    Mutant(
        "a termination bootstraps",
        SAC,
        "1.0 - terminations, soft",
        "1.0 + 0.0 * terminations, soft",
    ),
    Mutant(
        "mean of the target critics, not their minimum", SAC, "next_q.amin(-2)", "next_q.mean(-2)"
    ),
    Mutant("maximum of the critics for the actor", SAC, "- q.amin(-2)", "- q.amax(-2)"),
    Mutant(
        "sign of the entropy in the target",
        SAC,
        "- alpha * next_log_prob",
        "+ alpha * next_log_prob",
    ),
    Mutant("sign of the temperature's loss", SAC, "return -log_alpha *", "return log_alpha *"),
    Mutant(
        "the temperature's gradient reaches the actor",
        SAC,
        "(log_prob.detach() + target_entropy)",
        "(log_prob + target_entropy)",
    ),
    Mutant(
        "the actor's gradient reaches the critics",
        "models/mlp_redq.py",
        "self.critic.q_values(obs, actions, self.critic.flat.detach())",
        "self.critic.q_values(obs, actions)",
    ),
    Mutant(
        "the target uses the online critics",
        SAC,
        "model.target_q_values(batch.next_obs",
        "model.q_values(batch.next_obs",
    ),
    Mutant(
        "the target's action is of the current state",
        SAC,
        "model.sample(batch.next_obs",
        "model.sample(batch.obs",
    ),
    Mutant("critic losses averaged over critics", SAC, ".mean(-1).sum(-1)", ".mean(-1).mean(-1)"),
    Mutant(
        "a fixed alpha is not the config's",
        SAC,
        "float(config.alpha)))",
        "float(config.alpha) + 1e-3))",
    ),
    Mutant(
        "a fixed alpha of 0 through a logarithm",
        SAC,
        "torch.tensor(config.initial_alpha).log()) if auto else None",
        "torch.tensor(config.initial_alpha if auto else float(config.alpha)).log())",
    ),
    Mutant(
        "no tanh correction",
        "models/actors.py",
        "gaussian_log_prob(noise, log_std) - tanh_log_det(pre_tanh)",
        "gaussian_log_prob(noise, log_std)",
    ),
    Mutant(
        "tanh correction with an epsilon",
        "models/actors.py",
        "return 2.0 * (math.log(2.0) * pre_tanh.shape[-1] - inner)",
        "return (1 - pre_tanh.tanh() ** 2 + 1e-6).log().sum(-1)",
    ),
    Mutant(
        "dataset actions not clipped",
        "models/actors.py",
        "actions.clamp(-ACTION_BOUND, ACTION_BOUND).atanh()",
        "actions.atanh()",
    ),
    Mutant(
        "Polyak with the weights swapped",
        "algorithms/base.py",
        "target.lerp_(online, tau)",
        "target.lerp_(online, 1 - tau)",
    ),
    Mutant(
        "time limit stored as a termination",
        "runtime/collector.py",
        "true_next, terminations, truncations)",
        "true_next, terminations | truncations, truncations)",
        "tests/test_collection.py",
    ),
    Mutant(
        "next observation of another episode",
        "runtime/collector.py",
        "true_next[index] = infos",
        "infos",
        "tests/test_collection.py",
    ),
    Mutant(
        "random actions after learning has started",
        "runtime/loops.py",
        "random=before < config.learning_starts",
        "random=True",
        "tests/test_conformance.py -k explores",
    ),
    Mutant(
        "exploration shares its generator with evaluation",
        "runtime/evaluation.py",
        "deterministic=True)",
        "deterministic=False, noise={'action': torch.randn(len(batch), self.spec.action_dim)})",
        "tests/test_cli.py -k evaluate",
    ),
    Mutant(
        "the sampling generator is not saved",
        "runtime/engine.py",
        'restore_generator(self.generator, state["generator"])',
        "pass",
        "tests/test_exactness.py -k Pendulum",
    ),
    Mutant(
        "the simulator is not saved",
        "envs/state.py",
        '        _restore_simulator(*simulator, state["simulator"])',
        "        pass",
        "tests/test_exactness.py -k HalfCheetah",
    ),
    Mutant(
        "hindsight reward from the goal achieved before the action",
        HER,
        "achieved = rows[:, self._achieved]",
        "achieved = rows[:, self.obs_dim - goals.shape[1] : self.obs_dim]",
        HINDSIGHT,
    ),
    Mutant(
        "the next observation keeps its goal",
        HER,
        "for place in self._goals:",
        "for place in self._goals[:1]:",
        HINDSIGHT,
    ),
    Mutant(
        "the observation keeps its goal",
        HER,
        "for place in self._goals:",
        "for place in self._goals[1:]:",
        HINDSIGHT,
    ),
    Mutant(
        "the old goal's reward is kept",
        HER,
        'rows[:, self.layout.slices["rewards"].start] = self._task',
        "_ = self._task",
        HINDSIGHT,
    ),
    Mutant(
        "the old goal's termination is kept",
        HER,
        "if terminations is not None:",
        "if False:",
        HINDSIGHT,
    ),
    Mutant(
        "hindsight goals of other environments",
        HER,
        "begin + self.num_envs * (uniform * steps).astype(np.int64)",
        "begin + (uniform * (last - begin + 1)).astype(np.int64)",
        HINDSIGHT,
    ),
    Mutant(
        "hindsight goals of the next episode",
        HER,
        "(last - begin) // self.num_envs + 1",
        "(last - begin) // self.num_envs + 2",
        HINDSIGHT,
    ),
    Mutant(
        "future goals from the past",
        HER,
        "begin = rows\n",
        "begin = self._first[rows % self.capacity]\n",
        HINDSIGHT,
    ),
    Mutant(
        "hindsight goals from overwritten rows",
        HER,
        "np.maximum(first, self.oldest + (first - self.oldest) % self.num_envs)",
        "first",
        HINDSIGHT,
    ),
    Mutant(
        "a running episode is relabelled with what it has",
        HER,
        "self._last[fresh % self.capacity] = RUNNING",
        "self._last[fresh % self.capacity] = fresh",
        HINDSIGHT,
    ),
    Mutant(
        "the share that keeps its goal is relabelled",
        HER,
        "whether < self",
        "whether > self",
        HINDSIGHT,
    ),
    Mutant(
        "episodes are not found again in restored rows",
        HER,
        "self._is_indexed = False",
        "self._is_indexed = True",
        HINDSIGHT,
    ),
    Mutant(
        "relabelled rewards without the reward wrappers",
        "envs/goals.py",
        "self._transform(self._reward(achieved, desired))",
        "np.asarray(self._reward(achieved, desired))",
        HINDSIGHT,
    ),
    Mutant(
        "a goal function for one pair is trusted with a batch",
        "envs/goals.py",
        "return at_once if np.array_equal(found, expected, equal_nan=True) else one_by_one",
        "return at_once",
        HINDSIGHT,
    ),
    Mutant(
        "episodes joined over a restart of the environment",
        "runtime/collector.py",
        "self._buffer.cut_episodes(self.num_envs)",
        "pass",
        "tests/test_goals.py -k joined",
    ),
]


def survives(mutant: Mutant) -> bool:
    """Whether the tests pass although the code is broken."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy)
        file = copy / "rl_training" / mutant.file
        text = file.read_text()
        if text.count(mutant.old) < 1:
            raise SystemExit(f"{mutant.file} has no {mutant.old!r}: bring the mutant up to date")
        file.write_text(text.replace(mutant.old, mutant.new))
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-x",
                "-p",
                "no:cacheprovider",
                *mutant.tests.split(),
            ],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode not in (0, 1):
        raise SystemExit(f"the tests did not run for {mutant.trap!r}:\n{done.stdout[-2000:]}")
    return done.returncode == 0


def main() -> None:
    """Try every mutant; exit 1 if one survives."""
    survivors = 0
    for mutant in MUTANTS:
        alive = survives(mutant)
        survivors += alive
        print(f"{'SURVIVED' if alive else 'killed  '}  {mutant.trap}", flush=True)
    print(f"{len(MUTANTS) - survivors} of {len(MUTANTS)} mutants killed")
    sys.exit(survivors > 0)


if __name__ == "__main__":
    main()
