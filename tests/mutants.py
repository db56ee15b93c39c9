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
BASE = "algorithms/base.py"
SAC = "algorithms/sac.py"
DDPG = "algorithms/ddpg.py"
TD3 = "algorithms/td3.py"
REDQ = "algorithms/redq.py"
TQC = "algorithms/tqc.py"
DQN = "algorithms/dqn.py"
HER = "data/her.py"
GOLDEN = "tests/test_sac_golden.py"
DETERMINISTIC = "tests/test_td3_golden.py"
SUBSETS = "tests/test_redq_golden.py"
QUANTILES = "tests/test_tqc_golden.py"
DQN_GOLDEN = "tests/test_dqn_golden.py"
HINDSIGHT = "tests/test_her.py"
OFFLINE = "tests/test_offline.py"


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
        BASE,
        "1.0 - terminations, next_value",
        "1.0 + 0.0 * terminations, next_value",
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
        "models/actor_critic.py",
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
    Mutant("critic losses averaged over critics", BASE, ".mean(-1).sum(-1)", ".mean(-1).mean(-1)"),
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
        BASE,
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
        "random=state.step < config.learning_starts",
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
        "Polyak after every critic step",
        DDPG,
        "            polyak_update(self.model.",
        "        polyak_update(self.model.",
        DETERMINISTIC,
    ),
    Mutant(
        "no Polyak for the target actor",
        DDPG,
        "polyak_update(self.model.actor_target, self.model.actor.flat, self.config.tau)",
        "pass",
        DETERMINISTIC,
    ),
    Mutant("no smoothing noise", TD3, "(noise * scale)", "(noise * 0.0)", DETERMINISTIC),
    Mutant(
        "smoothing noise not clipped",
        TD3,
        "(noise * scale).clamp(-clip, clip)",
        "(noise * scale)",
        DETERMINISTIC,
    ),
    Mutant(
        "the smoothed action not clipped",
        TD3,
        ".clamp(-clip, clip)).clamp(-1.0, 1.0)",
        ".clamp(-clip, clip))",
        DETERMINISTIC,
    ),
    Mutant(
        "mean of the twin target critics", DDPG, "next_q.amin(-2)", "next_q.mean(-2)", DETERMINISTIC
    ),
    Mutant(
        "the target's action of the present actor",
        "models/mlp_td3.py",
        "self.actor.mode(obs, self.actor_target)",
        "self.actor.mode(obs)",
        DETERMINISTIC,
    ),
    Mutant(
        "the target uses the online critics",
        DDPG,
        "model.target_q_values(batch.next_obs",
        "model.q_values(batch.next_obs",
        DETERMINISTIC,
    ),
    Mutant(
        "the actor maximises the minimum of both critics",
        "models/mlp_td3.py",
        "self.critic.first_q_values(obs, self.actor.mode(obs))",
        "self.frozen_q_values(obs, self.actor.mode(obs)).amin(-2)",
        DETERMINISTIC,
    ),
    Mutant(
        "the deterministic actor's gradient reaches the critics",
        "models/critics.py",
        "self.views(self.flat.detach())",
        "self.views(self.flat)",
        DETERMINISTIC,
    ),
    Mutant(
        "sign of the deterministic actor's loss",
        DDPG,
        "return -q.mean(-1)",
        "return q.mean(-1)",
        DETERMINISTIC,
    ),
    Mutant(
        "the delayed policy moves in every update",
        BASE,
        "return phase == self.period - 1",
        "return True",
        DETERMINISTIC,
    ),
    Mutant(
        "the policy moves at the delay's start",
        BASE,
        "return phase == self.period - 1",
        "return phase == 0",
        DETERMINISTIC,
    ),
    Mutant(
        "explored actions leave the bounds",
        "models/actors.py",
        "(self.mode(obs) + noise).clamp_(-1.0, 1.0)",
        "self.mode(obs) + noise",
        DETERMINISTIC,
    ),
    Mutant(
        "the policy's delay starts again after a resume",
        "runtime/engine.py",
        "(self.updates + i) % self.algorithm.period",
        "next(self.__dict__.setdefault('_made', iter(range(10**9)))) % self.algorithm.period",
        "tests/test_exactness.py -k delay",
    ),
    Mutant("minimum of the ensemble for REDQ's actor", REDQ, "q.mean(-2)", "q.amin(-2)", SUBSETS),
    Mutant(
        "one subset for all updates",
        REDQ,
        "uniform.topk(size, largest=False, sorted=False).indices",
        "torch.arange(size, device=uniform.device)",
        SUBSETS,
    ),
    Mutant(
        "the whole ensemble in REDQ's target",
        REDQ,
        'random_subset(noise["subset"], subset_size)',
        'random_subset(noise["subset"], len(noise["subset"]))',
        SUBSETS,
    ),
    Mutant(
        "the subset is of the online critics",
        REDQ,
        "subset_q_values(*at, model.target, members)",
        "subset_q_values(*at, model.critic.flat, members)",
        SUBSETS,
    ),
    Mutant(
        "REDQ's actor moves in every update",
        BASE,
        "return phase == self.period - 1",
        "return True",
        SUBSETS,
    ),
    Mutant(
        "REDQ's targets move once a block",
        SAC,
        "        polyak_update(self.model.target,",
        "            polyak_update(self.model.target,",
        SUBSETS,
    ),
    Mutant(
        "quantiles truncated net by net",
        TQC,
        "pooled.sort(-1).values[..., :keep]",
        "quantiles.sort(-1).values[..., : quantiles.shape[-1] - drop_per_net]"
        ".movedim(-3, -2).flatten(-2)",
        QUANTILES,
    ),
    Mutant("no truncation", TQC, ".values[..., :keep]", ".values", QUANTILES),
    Mutant("the smallest quantiles dropped", TQC, "[..., :keep]", "[..., -keep:]", QUANTILES),
    Mutant("pooled quantiles not sorted", TQC, "pooled.sort(-1).values[", "pooled[", QUANTILES),
    Mutant(
        "d quantiles dropped in all, not d a net",
        TQC,
        "drop_per_net * quantiles.shape[-3]",
        "drop_per_net",
        QUANTILES,
    ),
    Mutant(
        "the actor's mean is truncated",
        "models/critics.py",
        "values.mean(-1)",
        "values.sort(-1).values[..., :-2].mean(-1)",
        QUANTILES,
    ),
    Mutant(
        "minimum of the critics for TQC's actor",
        TQC,
        "return mean_actor_loss(q, log_prob, alpha=alpha)",
        "return (alpha * log_prob - q.amin(-2)).mean(-1)",
        QUANTILES,
    ),
    Mutant(
        "the quantiles' asymmetry reversed",
        "models/quantile_kernel.py",
        "(1.0 - tau) * (total - above), tau * above",
        "tau * (total - above), (1.0 - tau) * above",
        QUANTILES,
    ),
    Mutant(
        "the plain loss's asymmetry reversed",
        TQC,
        "torch.where(error < 0, 1.0 - tau, tau)",
        "torch.where(error < 0, tau, 1.0 - tau)",
        QUANTILES,
    ),
    Mutant(
        "quantiles at the intervals' ends",
        "models/quantile_kernel.py",
        "(ranks + 0.5) / count",
        "(ranks + 1.0) / count",
        QUANTILES,
    ),
    Mutant(
        "sign of the entropy in TQC's target",
        TQC,
        "kept - (alpha * following.log_prob)",
        "kept + (alpha * following.log_prob)",
        QUANTILES,
    ),
    Mutant(
        "a learner's update ignores its phase",
        SAC,
        "if self.moves_policy(phase):",
        "if True:",
        SUBSETS,
    ),
    Mutant(
        "no target network",
        DQN,
        "model.target_q_values(batch.next_obs)",
        "model.q_values(batch.next_obs)",
        DQN_GOLDEN,
    ),
    Mutant("squared loss for Huber's", DQN, "functional.huber", "0.5 * functional.mse", DQN_GOLDEN),
    Mutant(
        "sum over the batch", DQN, 'reduction="none").mean(', 'reduction="none").sum(', DQN_GOLDEN
    ),
    Mutant(
        "a termination bootstraps in DQN",
        BASE,
        "1.0 - terminations, next_value",
        "1.0 + 0.0 * terminations, next_value",
        DQN_GOLDEN,
    ),
    Mutant(
        "a time limit ends DQN's value",
        "runtime/collector.py",
        "true_next, terminations, truncations)",
        "true_next, terminations | truncations, truncations)",
        "tests/test_discrete.py -k time_limits",
    ),
    Mutant(
        "Double DQN chooses by the target network",
        DQN,
        "model.q_values(batch.next_obs) if double else target_q",
        "target_q",
        DQN_GOLDEN,
    ),
    Mutant(
        "Double DQN evaluates by the online network",
        DQN,
        "next_values(target_q, choosing_q)",
        "next_values(choosing_q, target_q)",
        DQN_GOLDEN,
    ),
    Mutant("the target moves with every update", DQN, "if self.form(phase):", "if 1:", DQN_GOLDEN),
    Mutant(
        "the target moves an update early",
        DQN,
        "phase == self.period - 1",
        "phase == 0",
        DQN_GOLDEN,
    ),
    Mutant("soft updates copy", DQN, "model.flat, config.tau)", "model.flat, 1.0)", DQN_GOLDEN),
    Mutant(
        "epsilon is constant", DQN, "step / config.epsilon_decay_steps)", "0.0 * step)", DQN_GOLDEN
    ),
    Mutant(
        "epsilon falls by updates",
        "runtime/loops.py",
        "explore_at(state.step)",
        "explore_at(session.engine.updates)",
        "tests/test_discrete.py -k epsilon",
    ),
    Mutant("the coin is the wrong way round", DQN, "coin < self", "coin > self", DQN_GOLDEN),
    Mutant("a random action beyond the last", DQN, ".floor()", ".ceil()", DQN_GOLDEN),
    Mutant(
        "the environment's first action is taken for 0",
        "envs/actions.py",
        ".astype(np.int64) + self._start",
        ".astype(np.int64)",
        "tests/test_collection.py -k discrete",
    ),
    Mutant(
        "random play leaves an action out",
        "runtime/acting.py",
        "uniform * spec.action_dim)",
        "uniform * (spec.action_dim - 1))",
        "tests/test_collection.py -k discrete",
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
        "one batch for all updates of a block",
        HER,
        "drawn.transpose(0, 1)",
        "drawn[:1].expand_as(drawn).transpose(0, 1)",
        HINDSIGHT,
    ),
    Mutant(
        "staged batches move to another place",
        HER,
        "if len(rows) not in self._staged_batches:",
        "if True:",
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
    Mutant(
        "BC's error summed over the action's axes",
        "algorithms/bc.py",
        ".square().mean((-2, -1))",
        ".square().sum(-1).mean(-1)",
        "tests/test_bc_golden.py",
    ),
    Mutant(
        "the sign of BC's likelihood",
        "algorithms/bc.py",
        "return -log_prob.mean(-1)",
        "return log_prob.mean(-1)",
        "tests/test_bc_golden.py",
    ),
    Mutant(
        "blocks of recorded data begin where a call does",
        "runtime/engine.py",
        "start = self.updates % longest if self.sampler.is_fixed else 0",
        "start = 0",
        OFFLINE,
    ),
    Mutant(
        "a checkpoint inside a block has the state after its draws",
        "runtime/engine.py",
        "self._before_block if self._block else self._sources()",
        "self._sources()",
        OFFLINE,
    ),
    Mutant(
        "the schedule offline follows the loop's pauses",
        "runtime/loops.py",
        "session.schedule_learning_rates(before - before % BLOCK)",
        "session.schedule_learning_rates(before)",
        OFFLINE,
    ),
    Mutant(
        "held-out rows stay among the training rows",
        "data/offline_dataset.py",
        "self.rows = self.rows[:kept]",
        "kept = kept",
        OFFLINE,
    ),
    Mutant(
        "held-out rows are not normalised",
        "experiment/datasets.py",
        "for part in parts:\n            part.normalise_observations",
        "for part in parts[:1]:\n            part.normalise_observations",
        OFFLINE,
    ),
    Mutant(
        "changed data is taken for the run's own",
        "experiment/build.py",
        'saved.get("sha256") != task.data.record["sha256"]',
        'saved.get("rows") != task.data.record["rows"]',
        OFFLINE,
    ),
    Mutant(
        "the best is the largest held-out loss",
        "runtime/trainer.py",
        "value < self.best_loss",
        "value > self.best_loss",
        OFFLINE,
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
