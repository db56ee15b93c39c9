"""Mutation tests: break the code on purpose and check that a test fails.

    python -m tests.mutants [WORD ...]

Each mutant changes one place in a copy of the sources, and its tests must fail. With words, only
the mutants whose trap, file or tests contain one of them are run.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BASE = "algorithms/base.py"
ADAM = "algorithms/optimizers.py"
SAC = "algorithms/sac.py"
DDPG = "algorithms/ddpg.py"
TD3 = "algorithms/td3.py"
REDQ = "algorithms/redq.py"
TQC = "algorithms/tqc.py"
DQN = "algorithms/dqn.py"
CQL = "algorithms/cql.py"
EDAC = "algorithms/edac.py"
RLPD = "algorithms/rlpd.py"
MIXING = "data/samplers.py"
PRIORITIES = "data/prioritized_replay.py"
TRAINER = "runtime/session.py"
LOOPS = "runtime/training_loop.py"
MANAGER = "experiment/run_directory.py"
STRICT = "tests/experiment/test_strict_config.py"
ALLOCATIONS = "tests/runtime/test_allocations.py"
RESOLVING = "tests/envs/test_resolving.py"
DATASETS = "experiment/dataset_source.py"
ACTION_GRADIENTS = "models/kernels/action_gradients.py"
ADVANTAGE = "algorithms/advantage.py"
IQL = "algorithms/iql.py"
AWAC = "algorithms/awac.py"
TD3_BC = "algorithms/td3_bc.py"
REBRAC = "algorithms/rebrac.py"
TANH_MEAN = "models/actors.py"
HER = "data/hindsight.py"
GOLDEN = "tests/algorithms/test_sac.py"
DETERMINISTIC = "tests/algorithms/test_td3.py"
SUBSETS = "tests/algorithms/test_redq.py"
QUANTILES = "tests/algorithms/test_tqc.py"
DQN_GOLDEN = "tests/algorithms/test_dqn.py"
CONSERVATIVE = "tests/algorithms/test_cql.py"
DIVERSE = "tests/algorithms/test_edac.py"
PRIOR_DATA = "tests/algorithms/test_rlpd.py"
TRUNKS = "tests/models/test_trunks.py"
SHARES = "tests/data/test_samplers.py"
PRIORITIZED = "tests/data/test_prioritized_replay.py"
PHASES = "tests/api/test_offline_to_online.py"
IQL_GOLDEN = "tests/algorithms/test_iql.py"
AWAC_GOLDEN = "tests/algorithms/test_awac.py"
TD3_BC_GOLDEN = "tests/algorithms/test_td3_bc.py"
REBRAC_GOLDEN = "tests/algorithms/test_rebrac.py"
HINDSIGHT = "tests/data/test_hindsight.py"
FIELDS = "data/fields.py"
FIELDS_REFERENCE = "tests/data/test_fields.py"
OFFLINE = "tests/api/test_offline.py"
FQE = "algorithms/fqe.py"
RECORDING = "runtime/recording.py"
REPLAY = "tests/data/test_datasets.py -k replay"
PT = "boundary/pt.py"
NPZ = "boundary/npy.py"
ODD_DATA = "tests/data/test_odd_datasets.py"
KNOWN_VALUE = "tests/algorithms/test_fqe.py::test_finds_a_known_value"


@dataclass(frozen=True)
class Mutant:
    """A change to one source line, and the tests that must fail."""

    trap: str
    file: str
    old: str
    new: str
    tests: str = GOLDEN


MUTANTS = [
    Mutant(
        "n-step windows cross the ring buffer's boundary",
        FIELDS,
        ".unsqueeze(-1) >= self._offsets",
        ".unsqueeze(-1) >= 0 * self._offsets",
        FIELDS_REFERENCE,
    ),
    Mutant(
        "next actions cross the ring buffer's boundary",
        FIELDS,
        "(self._newer(rows, places) >= self._stride) & ",
        "",
        FIELDS_REFERENCE,
    ),
    Mutant(
        "next actions cross a truncation",
        FIELDS,
        "return ended + cut > 0",
        "return ended > 0",
        FIELDS_REFERENCE,
    ),
    Mutant(
        "n-step rewards cross a truncation",
        FIELDS,
        'flags = rows[:, at["terminations"].start : at["truncations"].stop]',
        'flags = rows[:, at["terminations"]]',
        FIELDS_REFERENCE,
    ),
    Mutant(
        "the discount is γ^n for windows shorter than n steps",
        FIELDS,
        "self._powers.index_select(0, steps)",
        "self._powers.index_select(0, 0 * steps + len(self._offsets))",
        FIELDS_REFERENCE,
    ),
    Mutant(
        "the following row is from another environment",
        "data/replay_buffer.py",
        "stride=self.num_envs,",
        "stride=1,",
        FIELDS_REFERENCE,
    ),
    Mutant(
        "a resumed replay has its boundary at the initial position",
        "data/replay_buffer.py",
        "        self._position.fill_(self.total % self.capacity)\n        self.dirty.clear()",
        "        self.dirty.clear()",
        FIELDS_REFERENCE,
    ),
    Mutant(
        "n-step targets use the one-step discount",
        BASE,
        'return batch.extra.get("discounts", gamma)',
        "return gamma",
        "tests/algorithms/test_n_step.py -k discount",
    ),
    Mutant(
        "a termination bootstraps",
        BASE,
        "1.0 - terminations, next_value",
        "1.0 + 0.0 * terminations, next_value",
    ),
    Mutant(
        "the target is the mean of the target critics instead of the minimum",
        SAC,
        "next_q.amin(-2)",
        "next_q.mean(-2)",
    ),
    Mutant("the actor maximizes the maximum of the critics", SAC, "- q.amin(-2)", "- q.amax(-2)"),
    Mutant(
        "the entropy has the wrong sign in the target",
        SAC,
        "- alpha * next_log_prob",
        "+ alpha * next_log_prob",
    ),
    Mutant(
        "the temperature's loss has the wrong sign",
        SAC,
        "return -log_alpha *",
        "return log_alpha *",
    ),
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
        "the target uses an action of the current state",
        SAC,
        "model.sample(batch.next_obs",
        "model.sample(batch.obs",
    ),
    Mutant(
        "critic losses are averaged over critics", BASE, ".mean(-1).sum(-1)", ".mean(-1).mean(-1)"
    ),
    Mutant(
        "a fixed alpha differs from the config",
        SAC,
        "float(config.alpha)))",
        "float(config.alpha) + 1e-3))",
    ),
    Mutant(
        "a fixed alpha of 0 is stored as a logarithm",
        SAC,
        "nn.Parameter(first.log()) if auto else None",
        "nn.Parameter((first if auto else torch.tensor(float(config.alpha))).log())",
    ),
    Mutant(
        "no tanh correction",
        "models/actors.py",
        "gaussian_log_prob(noise, log_std) - tanh_log_det(pre_tanh)",
        "gaussian_log_prob(noise, log_std)",
    ),
    Mutant(
        "the tanh correction has an epsilon",
        "models/actors.py",
        "return 2.0 * (math.log(2.0) * pre_tanh.shape[-1] - inner)",
        "return (1 - pre_tanh.tanh() ** 2 + 1e-6).log().sum(-1)",
    ),
    Mutant(
        "dataset actions are not clipped",
        "models/actors.py",
        "actions.clamp(-ACTION_BOUND, ACTION_BOUND).atanh()",
        "actions.atanh()",
    ),
    Mutant(
        "the Polyak weights are swapped",
        BASE,
        "target.lerp_(online, tau)",
        "target.lerp_(online, 1 - tau)",
    ),
    Mutant(
        "a time limit is stored as a termination",
        "runtime/collector.py",
        "true_next, terminations, truncations)",
        "true_next, terminations | truncations, truncations)",
        "tests/runtime/test_collector.py",
    ),
    Mutant(
        "the next observation is from another episode",
        "runtime/collector.py",
        "true_next[index] = infos",
        "infos",
        "tests/runtime/test_collector.py",
    ),
    Mutant(
        "actions stay random after learning has started",
        "runtime/training_loop.py",
        "random=state.step - begin < random_until",
        "random=True",
        "tests/algorithms/test_conformance.py -k explores",
    ),
    Mutant(
        "exploration shares its generator with evaluation",
        "runtime/evaluation.py",
        "deterministic=True)",
        "deterministic=False, noise={'action': torch.randn(len(batch), self.spec.action_dim)})",
        "tests/cli/test_cli.py -k evaluate",
    ),
    Mutant(
        "the sampling generator is not saved",
        "runtime/engine.py",
        'restore_generator(self.generator, state["generator"])',
        "pass",
        "tests/runtime/test_exact_resume.py -k Pendulum",
    ),
    Mutant(
        "the simulator is not saved",
        "envs/state.py",
        '        _restore_simulator(*simulator, state["simulator"])',
        "        pass",
        "tests/runtime/test_exact_resume.py -k HalfCheetah",
    ),
    Mutant(
        "targets are updated after every critic step",
        DDPG,
        '        if "actor" in due:\n            super().move_targets(due)\n',
        '        super().move_targets(due)\n        if "actor" in due:\n',
        DETERMINISTIC,
    ),
    Mutant(
        "the target actor is not updated",
        DDPG,
        "polyak_update(self.model.actor_target, self.model.actor.flat, self.config.tau)",
        "pass",
        DETERMINISTIC,
    ),
    Mutant("no smoothing noise", TD3, "(noise * scale)", "(noise * 0.0)", DETERMINISTIC),
    Mutant(
        "smoothing noise is not clipped",
        TD3,
        "(noise * scale).clamp(-clip, clip)",
        "(noise * scale)",
        DETERMINISTIC,
    ),
    Mutant(
        "the smoothed action is not clipped",
        TD3,
        ".clamp(-clip, clip)).clamp(-1.0, 1.0)",
        ".clamp(-clip, clip))",
        DETERMINISTIC,
    ),
    Mutant(
        "the target is the mean of the twin target critics",
        DDPG,
        "next_q.amin(-2)",
        "next_q.mean(-2)",
        DETERMINISTIC,
    ),
    Mutant(
        "the target's action is from the current actor",
        "models/actor_critic.py",
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
        "the actor maximizes the minimum of both critics",
        "models/actor_critic.py",
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
        "the deterministic actor's loss has the wrong sign",
        DDPG,
        "return -q.mean(-1)",
        "return q.mean(-1)",
        DETERMINISTIC,
    ),
    Mutant(
        "the delayed policy is updated in every update",
        BASE,
        "if (updates + 1) % every == 0",
        "if True",
        DETERMINISTIC,
    ),
    Mutant(
        "the policy is updated at the start of the delay",
        BASE,
        "if (updates + 1) % every == 0",
        "if updates % every == 0",
        DETERMINISTIC,
    ),
    Mutant(
        "exploration noise exceeds the action bounds",
        "models/actors.py",
        "(self.mode(obs) + noise).clamp_(-1.0, 1.0)",
        "self.mode(obs) + noise",
        DETERMINISTIC,
    ),
    Mutant(
        "the policy's delay starts again after a resume",
        "runtime/engine.py",
        "self.algorithm.due(self.updates + i)",
        "self.algorithm.due(next(self.__dict__.setdefault('_made', iter(range(10**9)))))",
        "tests/runtime/test_exact_resume.py -k delay",
    ),
    Mutant(
        "REDQ's actor maximizes the minimum of the ensemble",
        REDQ,
        "q.mean(-2)",
        "q.amin(-2)",
        SUBSETS,
    ),
    Mutant(
        "all updates use the same subset",
        REDQ,
        "uniform.topk(size, largest=False, sorted=False).indices",
        "torch.arange(size, device=uniform.device)",
        SUBSETS,
    ),
    Mutant(
        "REDQ's target uses the whole ensemble",
        REDQ,
        'random_subset(noise["subset"], subset_size)',
        'random_subset(noise["subset"], len(noise["subset"]))',
        SUBSETS,
    ),
    Mutant(
        "the subset is from the online critics",
        REDQ,
        "obs, actions, model.target, members",
        "obs, actions, model.critic.flat, members",
        SUBSETS,
    ),
    Mutant(
        "REDQ's actor is updated in every update",
        BASE,
        "if (updates + 1) % every == 0",
        "if True",
        SUBSETS,
    ),
    Mutant(
        "REDQ's targets are updated once per block",
        BASE,
        "        if self.model.has_target:\n",
        '        if self.model.has_target and "actor" in due:\n',
        SUBSETS,
    ),
    Mutant(
        "quantiles are truncated per network",
        TQC,
        "pooled.sort(-1).values[..., :keep]",
        "quantiles.sort(-1).values[..., : quantiles.shape[-1] - drop_per_net]"
        ".movedim(-3, -2).flatten(-2)",
        QUANTILES,
    ),
    Mutant("no truncation", TQC, ".values[..., :keep]", ".values", QUANTILES),
    Mutant("the smallest quantiles are dropped", TQC, "[..., :keep]", "[..., -keep:]", QUANTILES),
    Mutant("pooled quantiles are not sorted", TQC, "pooled.sort(-1).values[", "pooled[", QUANTILES),
    Mutant(
        "d quantiles are dropped in total instead of d per network",
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
        "TQC's actor maximizes the minimum of the critics",
        TQC,
        "return mean_actor_loss(q, log_prob, alpha=alpha)",
        "return (alpha * log_prob - q.amin(-2)).mean(-1)",
        QUANTILES,
    ),
    Mutant(
        "the asymmetry of the quantile loss is reversed",
        "models/kernels/quantile_huber.py",
        "(1.0 - tau) * (total - above), tau * above",
        "tau * (total - above), (1.0 - tau) * above",
        QUANTILES,
    ),
    Mutant(
        "the asymmetry of the plain loss is reversed",
        TQC,
        "torch.where(error < 0, 1.0 - tau, tau)",
        "torch.where(error < 0, tau, 1.0 - tau)",
        QUANTILES,
    ),
    Mutant(
        "quantiles are at the ends of the intervals",
        "models/kernels/quantile_huber.py",
        "(ranks + 0.5) / count",
        "(ranks + 1.0) / count",
        QUANTILES,
    ),
    Mutant(
        "the entropy has the wrong sign in TQC's target",
        TQC,
        "kept - (alpha * following.log_prob)",
        "kept + (alpha * following.log_prob)",
        QUANTILES,
    ),
    Mutant(
        "a learner's update ignores what is due", BASE, 'if "actor" in due:', "if True:", SUBSETS
    ),
    Mutant(
        "DQN's target uses the online network",
        DQN,
        "model.target_q_values(batch.next_obs)",
        "model.q_values(batch.next_obs)",
        DQN_GOLDEN,
    ),
    Mutant(
        "DQN uses a squared loss instead of a Huber loss",
        DQN,
        "functional.huber",
        "0.5 * functional.mse",
        DQN_GOLDEN,
    ),
    Mutant(
        "the loss is summed over the batch",
        DQN,
        "weights).mean(-1)",
        "weights).sum(-1)",
        DQN_GOLDEN,
    ),
    Mutant(
        "a termination bootstraps in DQN",
        BASE,
        "1.0 - terminations, next_value",
        "1.0 + 0.0 * terminations, next_value",
        DQN_GOLDEN,
    ),
    Mutant(
        "DQN does not bootstrap after a time limit",
        "runtime/collector.py",
        "true_next, terminations, truncations)",
        "true_next, terminations | truncations, truncations)",
        "tests/algorithms/test_discrete_actions.py -k time_limits",
    ),
    Mutant(
        "Double DQN selects actions with the target network",
        DQN,
        "model.q_values(batch.next_obs) if double else target_q",
        "target_q",
        DQN_GOLDEN,
    ),
    Mutant(
        "Double DQN evaluates actions with the online network",
        DQN,
        "next_values(target_q, choosing_q)",
        "next_values(choosing_q, target_q)",
        DQN_GOLDEN,
    ),
    Mutant(
        "the target is updated in every update", DQN, 'if "target" in due:', "if 1:", DQN_GOLDEN
    ),
    Mutant(
        "the target is updated one update early",
        BASE,
        "if (updates + 1) % every == 0",
        "if (updates + 2) % every == 0",
        DQN_GOLDEN,
    ),
    Mutant(
        "no gradient clipping",
        DQN,
        '{"q": model.flat}, config.max_grad_norm',
        '{"q": model.flat}',
        DQN_GOLDEN,
    ),
    Mutant("a small gradient is scaled up", ADAM, ".clamp(max=1.0)", "", DQN_GOLDEN),
    Mutant(
        "soft updates copy the network",
        DQN,
        "self.model.flat, self.config.tau)",
        "self.model.flat, 1.0)",
        DQN_GOLDEN,
    ),
    Mutant(
        "epsilon is constant", DQN, "step / config.epsilon_decay_steps)", "0.0 * step)", DQN_GOLDEN
    ),
    Mutant(
        "epsilon decays with updates instead of steps",
        "runtime/training_loop.py",
        "explore_at(state.step - begin)",
        "explore_at(session.engine.updates)",
        "tests/algorithms/test_discrete_actions.py -k epsilon",
    ),
    Mutant(
        "exploration and exploitation are swapped", DQN, "coin < self", "coin > self", DQN_GOLDEN
    ),
    Mutant("a random action is out of range", DQN, ".floor()", ".ceil()", DQN_GOLDEN),
    Mutant(
        "the environment's first action is assumed to be 0",
        "envs/actions.py",
        ".astype(np.int64) + self._start",
        ".astype(np.int64)",
        "tests/runtime/test_collector.py -k discrete",
    ),
    Mutant(
        "random play never chooses some action",
        "runtime/acting.py",
        "uniform * spec.action_dim)",
        "uniform * (spec.action_dim - 1))",
        "tests/runtime/test_collector.py -k discrete",
    ),
    Mutant(
        "the hindsight reward uses the goal achieved before the action",
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
        "hindsight goals come from other environments",
        HER,
        "start + self.num_envs * (uniform * steps).astype(np.int64)",
        "start + (uniform * (last - start + 1)).astype(np.int64)",
        HINDSIGHT,
    ),
    Mutant(
        "hindsight goals come from the next episode",
        HER,
        "(last - start) // self.num_envs + 1",
        "(last - start) // self.num_envs + 2",
        HINDSIGHT,
    ),
    Mutant(
        "future goals come from the past",
        HER,
        "start = rows\n",
        "start = self._first[rows % self.capacity]\n",
        HINDSIGHT,
    ),
    Mutant(
        "hindsight goals come from overwritten rows",
        HER,
        "np.maximum(first, self.oldest + (first - self.oldest) % self.num_envs)",
        "first",
        HINDSIGHT,
    ),
    Mutant(
        "an unfinished episode is relabeled",
        HER,
        "self._last[fresh % self.capacity] = RUNNING",
        "self._last[fresh % self.capacity] = fresh",
        HINDSIGHT,
    ),
    Mutant(
        "transitions that should keep their goal are relabeled",
        HER,
        "whether < self",
        "whether > self",
        HINDSIGHT,
    ),
    Mutant(
        "all updates of a block use the same batch",
        HER,
        "drawn.transpose(0, 1)",
        "drawn[:1].expand_as(drawn).transpose(0, 1)",
        HINDSIGHT,
    ),
    Mutant(
        "staged batches are reallocated",
        HER,
        "if len(rows) not in self._staged_batches:",
        "if True:",
        HINDSIGHT,
    ),
    Mutant(
        "episodes are not recovered from restored rows",
        HER,
        "self._is_indexed = False",
        "self._is_indexed = True",
        HINDSIGHT,
    ),
    Mutant(
        "relabeled rewards skip the reward wrappers",
        "envs/goals.py",
        "self._transform(self._reward(achieved, desired))",
        "np.asarray(self._reward(achieved, desired))",
        HINDSIGHT,
    ),
    Mutant(
        "a goal function for single goals is called with a batch",
        "envs/goals.py",
        "return batched if np.array_equal(found, expected, equal_nan=True) else one_by_one",
        "return batched",
        HINDSIGHT,
    ),
    Mutant(
        "episodes are joined across a restart of the environment",
        "runtime/collector.py",
        "self.buffer.cut_episodes(self.num_envs)",
        "pass",
        "tests/envs/test_goals.py -k joined",
    ),
    Mutant(
        "the expectile loss is symmetric",
        IQL,
        "(expectile - (error < 0.0).to(error.dtype)).abs()",
        "(expectile - 0.0 * error).abs()",
        IQL_GOLDEN,
    ),
    Mutant(
        "the expectile prefers small values",
        IQL,
        "(error < 0.0).to",
        "(error > 0.0).to",
        IQL_GOLDEN,
    ),
    Mutant(
        "the expectile loss uses V - Q",
        IQL,
        "error = q - v",
        "error = v - q",
        IQL_GOLDEN,
    ),
    Mutant(
        "IQL's values use the online critics",
        IQL,
        "model.target_q_values(batch.obs, batch.actions)",
        "model.q_values(batch.obs, batch.actions)",
        IQL_GOLDEN,
    ),
    Mutant(
        "IQL's values use the mean of the critics",
        IQL,
        "batch.actions).amin(-2)",
        "batch.actions).mean(-2)",
        IQL_GOLDEN,
    ),
    Mutant(
        "IQL's advantage uses V before its update",
        IQL,
        (
            "    yield value_terms(model, batch, q, expectile=expectile)\n"
            "    v, next_v = state_values(model, batch)\n"
        ),
        (
            "    v, next_v = state_values(model, batch)\n"
            "    yield value_terms(model, batch, q, expectile=expectile)\n"
        ),
        IQL_GOLDEN,
    ),
    Mutant(
        "IQL's targets are updated before the critics",
        IQL,
        "            yield Stage(network_terms, {key: network.flat})\n",
        (
            '            key == "critic" and self.move_targets(due)\n'
            "            yield Stage(network_terms, {key: network.flat})\n"
        ),
        IQL_GOLDEN,
    ),
    Mutant(
        "IQL's critics regress to V(s)",
        IQL,
        "batch.terminations, next_v, gamma=discount)",
        "batch.terminations, v, gamma=discount)",
        IQL_GOLDEN,
    ),
    Mutant(
        "advantages are divided by beta",
        IQL,
        "clipped_weights(beta * advantage",
        "clipped_weights(advantage / beta",
        IQL_GOLDEN,
    ),
    Mutant(
        "the schedule applies to all of IQL's networks",
        IQL,
        '= ("actor",)',
        "= ()",
        IQL_GOLDEN,
    ),
    Mutant(
        "gradients flow through the weights",
        ADVANTAGE,
        "weights.detach() * log_prob",
        "weights * log_prob",
        IQL_GOLDEN,
    ),
    Mutant(
        "weights are not clipped",
        ADVANTAGE,
        "scores.clamp(max=math.log(clip)).exp()",
        "scores.exp()",
        IQL_GOLDEN,
    ),
    Mutant(
        "weights are clipped to the logarithm of their limit",
        ADVANTAGE,
        "scores.clamp(max=math.log(clip)).exp()",
        "scores.exp().clamp(max=math.log(clip))",
        AWAC_GOLDEN,
    ),
    Mutant(
        "softmax weights sum to 1",
        ADVANTAGE,
        "scores.softmax(-1) * scores.shape[-1]",
        "scores.softmax(-1)",
        AWAC_GOLDEN,
    ),
    Mutant(
        "the imitation loss has the wrong sign",
        ADVANTAGE,
        "return -(weights",
        "return (weights",
        AWAC_GOLDEN,
    ),
    Mutant(
        "log sigma has no bounds",
        TANH_MEAN,
        ".clamp(*self.log_std_bounds)",
        "",
        IQL_GOLDEN,
    ),
    Mutant(
        "the Gaussian has an unbounded mean",
        TANH_MEAN,
        "return outputs.tanh(), log_std",
        "return outputs, log_std",
        IQL_GOLDEN,
    ),
    Mutant(
        "sampled actions are not clipped",
        TANH_MEAN,
        "noise).clamp(-1.0, 1.0)",
        "noise)",
        AWAC_GOLDEN,
    ),
    Mutant(
        "AWAC's advantage uses one critic",
        AWAC,
        "q.amin(-2).chunk",
        "q[0].chunk",
        AWAC_GOLDEN,
    ),
    Mutant(
        "AWAC's advantage uses the target critics",
        AWAC,
        "q = model.q_values(obs, torch",
        "q = model.target_q_values(obs, torch",
        AWAC_GOLDEN,
    ),
    Mutant(
        "AWAC's advantage has the wrong sign",
        AWAC,
        "return taken - own",
        "return own - taken",
        AWAC_GOLDEN,
    ),
    Mutant(
        "AWAC's advantage uses the critics before their update",
        BASE,
        (
            "        yield self.critic_stage(batch, noise)\n"
            '        if "actor" in due:\n'
            "            yield self.policy_stage(batch, noise)\n"
        ),
        (
            '        if "actor" in due:\n'
            "            yield self.policy_stage(batch, noise)\n"
            "        yield self.critic_stage(batch, noise)\n"
        ),
        AWAC_GOLDEN,
    ),
    Mutant(
        "advantages are multiplied by lambda",
        AWAC,
        "advantage / temperature",
        "advantage * temperature",
        AWAC_GOLDEN,
    ),
    Mutant(
        "AWAC's target uses the current state",
        AWAC,
        "explore(batch.next_obs",
        "explore(batch.obs",
        AWAC_GOLDEN,
    ),
    Mutant(
        "AWAC has no weight decay",
        AWAC,
        "weight_decay=config.weight_decay",
        "weight_decay=0.0",
        AWAC_GOLDEN,
    ),
    Mutant(
        "AWAC uses the same noise for both actions",
        AWAC,
        'noise["action"])',
        'noise["next_action"])',
        AWAC_GOLDEN,
    ),
    Mutant(
        "lambda uses the Q-values instead of their absolute values",
        TD3_BC,
        "q.detach().abs().mean(-1)",
        "q.detach().mean(-1)",
        TD3_BC_GOLDEN,
    ),
    Mutant(
        "gradients flow through TD3+BC's lambda",
        TD3_BC,
        "q.detach().abs()",
        "q.abs()",
        TD3_BC_GOLDEN,
    ),
    Mutant(
        "TD3+BC's actor uses both critics",
        TD3_BC,
        "model.critic.first_q_values(batch.obs, actions)",
        "model.frozen_q_values(batch.obs, actions).amin(-2)",
        TD3_BC_GOLDEN,
    ),
    Mutant(
        "the imitation loss is summed over action dimensions",
        "algorithms/bc.py",
        ".square().mean((-2, -1))",
        ".square().sum(-1).mean(-1)",
        TD3_BC_GOLDEN,
    ),
    Mutant(
        "alpha scales the imitation loss",
        TD3_BC,
        "loss = imitation - weight * q.mean(-1)",
        "loss = weight * imitation - q.mean(-1)",
        TD3_BC_GOLDEN,
    ),
    Mutant(
        "TD3+BC's actor is updated in every update",
        BASE,
        "if (updates + 1) % every == 0",
        "if True",
        TD3_BC_GOLDEN,
    ),
    Mutant(
        "TD3+BC's targets are updated after every critic step",
        DDPG,
        '        if "actor" in due:\n            super().move_targets(due)\n',
        '        super().move_targets(due)\n        if "actor" in due:\n',
        TD3_BC_GOLDEN,
    ),
    Mutant(
        "ReBRAC's penalty applies without a next action",
        REBRAC,
        "next_q - batch.next_action_mask * penalty",
        "next_q - penalty",
        REBRAC_GOLDEN,
    ),
    Mutant(
        "ReBRAC's penalty uses the action without smoothing noise",
        REBRAC,
        "squared_distance(actions, batch.next_actions)",
        "squared_distance(target_actions, batch.next_actions)",
        REBRAC_GOLDEN,
    ),
    Mutant(
        "ReBRAC's distance is averaged over action dimensions",
        REBRAC,
        ".square().sum(-1)",
        ".square().mean(-1)",
        REBRAC_GOLDEN,
    ),
    Mutant(
        "ReBRAC's actor uses the first critic",
        REBRAC,
        "model.frozen_q_values(batch.obs, actions).amin(-2)",
        "model.critic.first_q_values(batch.obs, actions)",
        REBRAC_GOLDEN,
    ),
    Mutant(
        "policy actions of s' use the wrong density",
        CQL,
        "(density, here.log_prob, following.log_prob)",
        "(density, here.log_prob, here.log_prob)",
        CONSERVATIVE,
    ),
    Mutant(
        "policy actions of the next state are missing",
        CQL,
        'model.sample(batch.next_obs, noise["next_actions"])',
        'model.sample(batch.obs, noise["next_actions"])',
        CONSERVATIVE,
    ),
    Mutant(
        "the uniform density is 1 instead of 0.5^|A|",
        CQL,
        "math.log(0.5) * uniform.shape[-1]",
        "0.0",
        CONSERVATIVE,
    ),
    Mutant(
        "uniform actions are in [0, 1]",
        CQL,
        '2.0 * noise["random_actions"] - 1.0',
        '1.0 * noise["random_actions"]',
        CONSERVATIVE,
    ),
    Mutant("no importance weights", CQL, "(sampled - log_density)", "(sampled)", CONSERVATIVE),
    Mutant(
        "the temperature is missing outside the log-sum-exp",
        CQL,
        "temperature * ((sampled",
        "1.0 * ((sampled",
        CONSERVATIVE,
    ),
    Mutant(
        "gradients flow through the sampled log-densities",
        CQL,
        "@torch.no_grad()\ndef sampled_actions",
        "def sampled_actions",
        CONSERVATIVE,
    ),
    Mutant(
        "sampled actions are paired with the wrong states",
        "models/critics.py",
        "obs.expand(count, size, -1)",
        "obs.repeat_interleave(count, 0).view(count, size, -1)",
        CONSERVATIVE,
    ),
    Mutant(
        "gradients of chunks are averaged",
        "models/kernels/products.py",
        "*weight.shape[1:]).sum(1)",
        "*weight.shape[1:]).mean(1)",
        "tests/models/test_models.py",
    ),
    Mutant(
        "the split first layer pairs an action with another state",
        "models/critics.py",
        "linear(obs, obs_weight, params[1]).unsqueeze(-3)",
        "linear(obs, obs_weight, params[1]).flip(-2).unsqueeze(-3)",
        CONSERVATIVE,
    ),
    Mutant(
        "the multiplier's loss has the wrong sign",
        CQL,
        "return -bounded",
        "return bounded",
        CONSERVATIVE,
    ),
    Mutant("the multiplier has no bound", CQL, ".clamp(max=MULTIPLIER_MAX)", "", CONSERVATIVE),
    Mutant(
        "the critics' loss updates the multiplier",
        CQL,
        "bounded_multiplier(log_multiplier.detach())\n",
        "bounded_multiplier(log_multiplier)\n",
        CONSERVATIVE,
    ),
    Mutant(
        "the multiplier's loss updates the critics", CQL, "excess.detach()", "excess", CONSERVATIVE
    ),
    Mutant(
        "the target contains the disabled entropy term",
        SAC,
        "else 0.0 * alpha",
        "else alpha",
        CONSERVATIVE,
    ),
    Mutant(
        "all of CQL uses one learning rate",
        CQL,
        "rate = config.policy_learning_rate",
        "rate = config.learning_rate",
        CONSERVATIVE,
    ),
    Mutant("pairs i = j are counted", EDAC, " - units.square().sum((-3, -1))", "", DIVERSE),
    Mutant("the penalty is divided by N", EDAC, "/ (critics - 1)", "/ critics", DIVERSE),
    Mutant(
        "gradients are not normalized",
        EDAC,
        "gradients / (norms + NORM_EPS)",
        "gradients",
        DIVERSE,
    ),
    Mutant(
        "the penalty has no gradient",
        EDAC,
        "critic_diversity_loss(gradients, num",
        "critic_diversity_loss(gradients.detach(), num",
        DIVERSE,
    ),
    Mutant("diversity is rewarded", EDAC, "+ eta * diversity", "- eta * diversity", DIVERSE),
    Mutant(
        "gradients are taken with respect to the wrong inputs",
        ACTION_GRADIENTS,
        "[:, -action_dim:]",
        "[:, :action_dim]",
        DIVERSE,
    ),
    Mutant(
        "masks are missing in the tangents",
        ACTION_GRADIENTS,
        "tangent = _masked(tangent, below[i + 1])",
        "",
        DIVERSE,
    ),
    Mutant(
        "masks are missing in the slopes",
        ACTION_GRADIENTS,
        "_masked(torch.bmm(slopes[0], params[2 * i].mT), below[i])",
        "torch.bmm(slopes[0], params[2 * i].mT)",
        DIVERSE,
    ),
    Mutant("SAC-N computes the penalty", EDAC, "if eta == 0:", "if eta < 0:", DIVERSE),
    Mutant(
        "last layers have the usual initialization",
        EDAC,
        "LAST_LAYER_BOUND = 3e-3",
        "LAST_LAYER_BOUND = None",
        DIVERSE,
    ),
    Mutant("critics have no LayerNorm", RLPD, '{"layer_norm": "layer_norm"}', "{}", PRIOR_DATA),
    Mutant(
        "LayerNorm follows the activation",
        "models/mlp.py",
        "F.layer_norm(x, x.shape[-1:])",
        "F.layer_norm(x.relu(), x.shape[-1:])",
        PRIOR_DATA,
    ),
    Mutant(
        "LayerNorm always precedes the activation",
        "models/mlp.py",
        'norm_after = self.layer_norm == "after"',
        "norm_after = False",
        REBRAC_GOLDEN,
    ),
    Mutant(
        "ReBRAC's LayerNorm precedes the activation",
        REBRAC,
        '"critic": {"layer_norm": "after"}',
        '"critic": {"layer_norm": True}',
        REBRAC_GOLDEN,
    ),
    Mutant(
        "scale and shift are swapped",
        "models/mlp.py",
        "torch.addcmul(shift, F.layer_norm(x, x.shape[-1:]), scale)",
        "torch.addcmul(scale, F.layer_norm(x, x.shape[-1:]), shift)",
        PRIOR_DATA,
    ),
    Mutant(
        "renormalization has no warm-up",
        "models/batch_norm.py",
        "batches >= options.renorm_warmup",
        "batches >= 0",
        TRUNKS,
    ),
    Mutant(
        "critics are in training mode in the actor's loss",
        "models/network.py",
        "self.training and vector.requires_grad and torch",
        "self.training and torch",
        TRUNKS,
    ),
    Mutant(
        "a user's network draws from the global generator",
        "models/own_network.py",
        "torch.default_generator.manual_seed(seed)",
        "torch.default_generator.seed()",
        "tests/models/test_own_network.py -k generator",
    ),
    Mutant(
        "dropout repeats its masks",
        "models/mlp.py",
        'state["dropout_counter"].add_(1)',
        'state["dropout_counter"].add_(0)',
        TRUNKS,
    ),
    Mutant("RLPD uses SAC's target entropy", RLPD, "-0.5 * spec", "-1.0 * spec", PRIOR_DATA),
    Mutant(
        "sources are mixed per block instead of per batch",
        MIXING,
        "torch.cat([x.unflatten(0, (updates, -1)) for x in field], dim=1).flatten(0, 1)",
        "torch.cat(field)",
        SHARES,
    ),
    Mutant(
        "the number of rows from a source is rounded down",
        MIXING,
        "batch_size + 0.5",
        "batch_size",
        SHARES,
    ),
    Mutant(
        "pretraining samples the empty replay",
        MIXING,
        "batch_size if self.pretraining else ",
        "",
        SHARES,
    ),
    Mutant(
        "an empty source is sampled",
        MIXING,
        "if len(source) == 0:",
        "if False:",
        SHARES,
    ),
    Mutant(
        "an update compiled in pretraining is replayed on mixed batches",
        "runtime/engine.py",
        "pattern = (self.sampler.form, due)",
        "pattern = (0, due)",
        SHARES,
    ),
    Mutant(
        "rows are counted once per block",
        MIXING,
        "self.online_rows += from_replay * updates",
        "self.online_rows += from_replay",
        SHARES,
    ),
    Mutant(
        "pretraining never ends",
        TRAINER,
        "if mixed.pretraining and state.step >= begin:",
        "if False:",
        PHASES,
    ),
    Mutant(
        "a block of pretraining continues after the switch to collection",
        "runtime/engine.py",
        "if not self.sampler.is_fixed:  # the rest",
        "if False:  # the rest",
        SHARES,
    ),
    Mutant(
        "a checkpoint at the switch to collection samples the last block again",
        "runtime/engine.py",
        "self._block and self.sampler.is_fixed else",
        "self._block else",
        PHASES,
    ),
    Mutant(
        "blocks of pretraining follow the intervals",
        MIXING,
        "return self.pretraining\n\n    has_position",
        "return False\n\n    has_position",
        PHASES,
    ),
    Mutant(
        "the dataset's position is not saved when batches are mixed",
        MIXING,
        "has_position = True  # the position in the dataset, the phase and the counts",
        "has_position = property(lambda self: self.pretraining)",
        PHASES,
    ),
    Mutant(
        "the replay is not normalized while the dataset is",
        DATASETS,
        "for source in (offline, replay))",
        "for source in (offline, offline))",
        PHASES,
    ),
    Mutant(
        "the replay stays raw",
        DATASETS,
        "offline, replay = (NormalizedSampler",
        "offline, _ = (NormalizedSampler",
        PHASES,
    ),
    Mutant(
        "the dataset is normalized twice",
        DATASETS,
        'parts[1:] if config.mode == "offline_to_online" else parts:',
        "parts:",
        PHASES,
    ),
    Mutant(
        "learning_starts is counted from the start of the run",
        LOOPS,
        "updates_due(state.step - begin, before - begin, config)",
        "updates_due(state.step, before, config)",
        PHASES,
    ),
    Mutant(
        "random play is counted from the start of the run",
        LOOPS,
        "random=state.step - begin < random_until",
        "random=state.step < random_until",
        PHASES,
    ),
    Mutant(
        "a fine-tuned policy plays at random first",
        LOOPS,
        "and not config.random_play:",
        "and False:",
        PHASES,
    ),
    Mutant(
        "fine-tuning starts with new optimizers",
        TRAINER,
        "load_tensors(self.algorithm, checkpoint, MODEL, OPTIMIZERS)\n        for optimizer",
        "load_tensors(self.algorithm, checkpoint, MODEL)\n        for optimizer",
        PHASES,
    ),
    Mutant(
        "fine-tuning continues at the end of the source's schedule",
        TRAINER,
        "optimizer.scale_learning_rate(1.0)",
        "pass",
        PHASES,
    ),
    Mutant(
        "the evaluation before the first step counts as the worst",
        "runtime/trainer_state.py",
        "            elif compare_returns:",
        "            if compare_returns:",
        PHASES,
    ),
    Mutant(
        "new rewards are not scaled like the recorded ones",
        "api/finetuning.py",
        'kwargs["reward_scale"] = scale * kwargs',
        'kwargs["reward_scale"] = kwargs',
        PHASES,
    ),
    Mutant(
        "BC's error is summed over action dimensions",
        "algorithms/bc.py",
        ".square().mean((-2, -1))",
        ".square().sum(-1).mean(-1)",
        "tests/algorithms/test_bc.py",
    ),
    Mutant(
        "BC's likelihood has the wrong sign",
        "algorithms/bc.py",
        "return -log_prob.mean(-1)",
        "return log_prob.mean(-1)",
        "tests/algorithms/test_bc.py",
    ),
    Mutant(
        "blocks of recorded data start with each call",
        "runtime/engine.py",
        "start = self.updates % longest if self.sampler.is_fixed else 0",
        "start = 0",
        OFFLINE,
    ),
    Mutant(
        "a checkpoint inside a block has the state after sampling it",
        "runtime/engine.py",
        "self._before_block if self._block and self.sampler.is_fixed else self._sources()",
        "self._sources()",
        OFFLINE,
    ),
    Mutant(
        "the offline schedule depends on the intervals",
        "runtime/training_loop.py",
        "session.schedule_learning_rates(before - before % BLOCK)",
        "session.schedule_learning_rates(before)",
        OFFLINE,
    ),
    Mutant(
        "held-out rows stay among the training rows",
        "data/offline_dataset.py",
        "self.rows = _keep_in_place(self.rows, ~held)",
        "_keep_in_place(self.rows, ~held)",
        OFFLINE,
    ),
    Mutant(
        "held-out rows are not normalized",
        "experiment/dataset_source.py",
        'if config.mode == "offline_to_online" else parts:',
        'if config.mode == "offline_to_online" else parts[:1]:',
        OFFLINE,
    ),
    Mutant(
        "changed data is accepted as the original data",
        "experiment/saved_run.py",
        'saved["sha256"] != now["sha256"]',
        'saved["rows"] != now["rows"]',
        OFFLINE,
    ),
    Mutant(
        "a truncated last episode affects the range of returns",
        "data/offline_dataset.py",
        "if len(lengths) > 2:",
        "if len(lengths) > 999:",
        "tests/data/test_datasets.py",
    ),
    Mutant(
        "early stopping in fine-tuning counts the steps of the source",
        "runtime/callbacks.py",
        "session.own_steps < config.min_steps",
        "session.state.step < config.min_steps",
        "tests/api/test_offline_to_online.py",
    ),
    Mutant(
        "a second copy of the data is kept",
        "experiment/dataset_source.py",
        "part.rows = part.rows.to(device)",
        "part.rows, part.spare = part.rows.to(device), part.rows.clone()",
        "tests/experiment/test_memory.py",
    ),
    Mutant(
        "the best is the largest held-out loss",
        "runtime/trainer_state.py",
        "value < self.best_loss",
        "value > self.best_loss",
        OFFLINE,
    ),
    Mutant(
        "a termination bootstraps in fitted Q evaluation",
        BASE,
        "1.0 - terminations, next_value",
        "1.0 + 0.0 * terminations, next_value",
        KNOWN_VALUE,
    ),
    Mutant(
        "the target uses the recorded next action instead of the policy's",
        FQE,
        "actions = self.choose_actions(batch.next_obs, deterministic=True, noise=None)",
        "actions = batch.actions",
        KNOWN_VALUE,
    ),
    Mutant(
        "the target uses the policy's action at the current state",
        FQE,
        "self.choose_actions(batch.next_obs, det",
        "self.choose_actions(batch.obs, det",
        KNOWN_VALUE,
    ),
    Mutant(
        "the evaluated policy sees observations normalized twice",
        FQE,
        "self.policy.choose_actions(obs, det",
        "self.policy.act(obs, det",
        KNOWN_VALUE,
    ),
    Mutant(
        "the targets of the fitted critics are never updated",
        FQE,
        "polyak_update(self.target, self.critic.flat, self.config.tau)",
        "pass",
        KNOWN_VALUE,
    ),
    Mutant(
        "a fitted critic uses another critic's target",
        FQE,
        "next_q, gamma=self.config.gamma",
        "next_q.mean(-2), gamma=self.config.gamma",
        "tests/algorithms/test_fqe.py",
    ),
    Mutant(
        "fitted Q evaluation uses transformed rewards",
        "api/offline_evaluation.py",
        "raw_rewards=True",
        "raw_rewards=False",
        "tests/algorithms/test_fqe.py",
    ),
    Mutant(
        "a converted replay mixes the rows of several environments",
        "api/datasets.py",
        "order % config.num_envs",
        "order * 0",
        REPLAY,
    ),
    Mutant(
        "a wrapped ring buffer is read from its first row",
        "api/datasets.py",
        "buffer.rows[order[by_env] % buffer.capacity]",
        "buffer.rows[: len(buffer)][by_env]",
        REPLAY,
    ),
    Mutant(
        "a converted replay has actions in [-1, 1]",
        "api/datasets.py",
        'ActionScaler(spec).to_env(rows[:, names["actions"]].numpy())',
        'rows[:, names["actions"]].numpy().copy()',
        REPLAY,
    ),
    Mutant(
        "the last episode of a converted replay is not truncated",
        "api/datasets.py",
        'rows[last, names["truncations"]] = ',
        "_ = ",
        REPLAY,
    ),
    Mutant(
        "the running return continues into the next episode",
        "runtime/observing.py",
        "np.where(ended, 0.0, returns)",
        "returns",
        "tests/test_normalization.py -k counted",
    ),
    Mutant(
        "running returns are lost on resume",
        "runtime/collector.py",
        "self._observer.load_state_dict(state)",
        "pass",
        "tests/test_normalization.py -k resumes_exactly",
    ),
    Mutant(
        "the running mean ignores the previous count",
        "normalization.py",
        "share = rows / self.count",
        "share = rows / (rows + 1.0)",
        "tests/test_normalization.py -k history",
    ),
    Mutant(
        "decoupled weight decay is added to the gradient",
        ADAM,
        "parameter.mul_(kept.to(parameter.dtype))",
        "gradient = gradient + self.decoupled_weight_decay * parameter",
        "tests/algorithms/test_optimizers.py -k papers",
    ),
    Mutant(
        "settings for all optimizers override those for one",
        "config_model.py",
        'for key in ("all", name):',
        'for key in (name, "all"):',
        "tests/algorithms/test_optimizers.py -k wins",
    ),
    Mutant(
        "the first moments become denormal",
        ADAM,
        "flush_tiny(self.moment1, 1e-30)",
        "pass",
        "tests/algorithms/test_adam.py",
    ),
    Mutant(
        "the second moments become denormal",
        ADAM,
        "flush_tiny(self.moment2, 1e-30)",
        "pass",
        "tests/algorithms/test_adam.py",
    ),
    Mutant(
        "weights decay until they are denormal",
        ADAM,
        "flush_tiny(parameter, 1e-20)",
        "pass",
        "tests/algorithms/test_adam.py",
    ),
    Mutant(
        "NaN is flushed to zero",
        ADAM,
        "torch.hardshrink(values, limit, out=values)",
        "values.nan_to_num_(); torch.hardshrink(values, limit, out=values)",
        "tests/algorithms/test_adam.py",
    ),
    Mutant(
        "reward wrappers do not apply to recorded rewards",
        DATASETS,
        "settings = parts.data.model_copy(",
        "settings = parts.data; parts.data.model_copy(",
        f"{PHASES} -k reward_wrappers",
    ),
    Mutant(
        "random actions and the environment share random numbers",
        RECORDING,
        "derive_seed(seed, Stream.EXPLORATION, 1)",
        "derive_seed(seed, Stream.RECORDING)",
        "tests/runtime/test_recording.py",
    ),
    Mutant(
        "policy noise and the environment share random numbers",
        RECORDING,
        "derive_seed(seed, Stream.EXPLORATION))",
        "derive_seed(seed, Stream.RECORDING))",
        "tests/runtime/test_recording.py",
    ),
    Mutant(
        "recorded observations share memory with the environment",
        RECORDING,
        "return np.array(value) if isinstance(value, np.ndarray) else value",
        "return value",
        "tests/runtime/test_recording.py",
    ),
    Mutant(
        "a requested time limit is ignored",
        "envs/resolving.py",
        'asked = kwargs.get("max_episode_steps")',
        "asked = None",
        "tests/data/test_datasets.py -k limit",
    ),
    Mutant(
        "actions are computed on the device of the replay",
        "experiment/build.py",
        "torch.Generator(algorithm.obs_shift.device)",
        "torch.Generator(buffer.rows.device)",
        HINDSIGHT,
    ),
    Mutant(
        "early stopping compares with the best value of another metric",
        "runtime/callbacks.py",
        'if state.get("watched", self._watched) != self._watched:',
        "if False:",
        "tests/runtime/test_control_config.py",
    ),
    Mutant(
        "a pointer still refers to a damaged best checkpoint",
        "runtime/checkpoint_writer.py",
        "if path and path.is_dir()",
        "if path",
        "tests/algorithms/test_conformance.py -k forgotten",
    ),
    Mutant(
        "a branch of a fine-tuned run is evaluated again",
        TRAINER,
        "wanted = self.settings.compare_returns and self.state.return_before is None",
        "wanted = self.settings.compare_returns",
        f"{PHASES} -k branch",
    ),
    Mutant(
        "the plot of a fine-tuned run starts with its source",
        "api/run_curves.py",
        'if row.get("env_steps") == row["step"] - start',
        'if "env_steps" in row',
        f"{PHASES} -k plotted_separately",
    ),
    Mutant(
        "a flag of 255 is used in the target",
        "data/offline_dataset.py",
        "if finite and odd:",
        "if False:",
        "tests/data/test_datasets.py -k flag",
    ),
    Mutant(
        "next_state is ignored",
        "data/column_names.py",
        '"next_observation", "next_state"),',
        '"next_observation"),',
        "tests/data/test_datasets.py",
    ),
    Mutant(
        "parts of a loss are counted twice in eval_loss",
        "runtime/evaluation.py",
        "if name not in algorithm.loss_parts",
        "if True",
        OFFLINE,
    ),
    Mutant(
        "an evaluation continues with observations that are not finite",
        "runtime/evaluation.py",
        "if not held.all():",
        "if False:",
        "tests/faults/test_nonfinite.py -k nonfinite",
    ),
    Mutant(
        "a failed evaluation loses what was learned before it",
        TRAINER,
        "if self.state.evaluation_owed:\n                try:",
        "if False:\n                try:",
        "tests/runtime/test_exact_resume.py -k evaluation",
    ),
    Mutant(
        "arrays that share memory are silently separated",
        "envs/state.py",
        "if any(np.may_share_memory(array, other) for other in views):",
        "if False:",
        "tests/runtime/test_exact_resume.py -k round_trip",
    ),
    Mutant(
        "a shared object is restored as two",
        "envs/state.py",
        "if self._visits.get(id(value), 0) < 2:",
        "if True:",
        "tests/runtime/test_exact_resume.py -k shared_objects",
    ),
    Mutant(
        "the exponential of an unclipped log σ is computed",
        "models/actors.py",
        "return mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)",
        "return mean, log_std",
        "tests/models/test_models.py -k log_std",
    ),
    Mutant(
        "a long episode is held out for a small fraction",
        "data/offline_dataset.py",
        "if abs(count + last - first - wanted) < abs(count - wanted):",
        "if count < wanted:",
        "tests/api/test_offline.py -k close_to_the_fraction",
    ),
    Mutant(
        "partial episodes affect the range of returns",
        "data/offline_dataset.py",
        "whole[:-1] = ~cut[:-1] | (lengths[:-1] == limit)",
        "pass",
        "tests/data/test_datasets.py -k pieces_of_a_replay",
    ),
    Mutant(
        "recording and evaluation use the same seeds",
        "runtime/recording.py",
        "start = derive_seed(seed, Stream.RECORDING)",
        "start = seed",
        "tests/runtime/test_recording.py -k evaluation_seeds",
    ),
    Mutant(
        "episode returns use transformed rewards",
        "runtime/collector.py",
        'infos["final_info"].get(OWN_RETURN, self._returns)',
        "self._returns",
        "tests/runtime/test_collector.py -k episode_returns",
    ),
    Mutant(
        "an episode's return includes the previous one",
        "envs/reward_wrappers.py",
        """        self.total = 0.0
        return self.env.reset""",
        "        return self.env.reset",
        "tests/runtime/test_collector.py -k episode_returns",
    ),
    Mutant(
        "True counts as a number of steps",
        "api/arguments.py",
        "if isinstance(value, bool) or not isinstance",
        "if not isinstance",
        "tests/api/test_managed.py -k wrong_argument_types",
    ),
    Mutant(
        "a managed class forgets the run that failed",
        "api/managed.py",
        """        finally:
            steps = list_steps(where.run_dir) if where.run_dir is not None else []
            if steps:
                self._use_checkpoint(steps[-1])""",
        """        finally:
            pass
        steps = list_steps(where.run_dir) if where.run_dir is not None else []
        if steps:
            self._use_checkpoint(steps[-1])""",
        "tests/api/test_managed.py -k failed",
    ),
    Mutant(
        "a managed class keeps the policy of a deleted checkpoint",
        "api/managed.py",
        "self._checkpoint, self._policy = path, None",
        "self._checkpoint = path",
        "tests/api/test_managed.py -k deleted_checkpoint",
    ),
    Mutant(
        "a learning rate of 0 causes no warning",
        "runtime/schedules.py",
        "return max(self.horizon, self.warmup + 1)",
        "return None",
        "tests/runtime/test_control_config.py -k beyond_the_schedule",
    ),
    Mutant(
        "one episode has an interval of width zero",
        "runtime/evaluation.py",
        "several = len(self.returns) > 1",
        "several = True",
        "tests/cli/test_cli.py -k test_evaluate",
    ),
    Mutant(
        "the thread count is not restored after training",
        "experiment/machine.py",
        "        torch.set_num_threads(before)",
        "        pass",
        "tests/runtime/test_control_config.py -k keeps_its_thread_count",
    ),
    Mutant(
        "run.json of a failed run has the step of the last log entry",
        "api/training.py",
        "{} if session is None else _RunInfo.facts(session)",
        "dict[str, Any]()",
        "tests/api/test_managed.py -k failed",
    ),
    Mutant(
        "an environment is not tried before a run",
        "envs/factory.py",
        "notes = check_episode(env, env_id, spec)",
        "notes = list[str]()",
        "tests/envs/test_checking.py",
    ),
    Mutant(
        "trying an environment consumes the run's random numbers",
        "envs/checking.py",
        "np.random.set_state(shared)",
        "pass",
        "tests/envs/test_checking.py -k global_generators",
    ),
    Mutant(
        "a missing time limit causes no warning",
        "envs/checking.py",
        "if evaluated and not any(",
        "if False and not any(",
        "tests/envs/test_checking.py -k time_limit",
    ),
    Mutant(
        "plots of offline runs only are flat lines",
        "api/run_plots.py",
        "over_updates = all(run.is_offline for run in runs)",
        "over_updates = False",
        "tests/api/test_plots.py -k over_updates",
    ),
    Mutant(
        "two of many runs look the same",
        "api/run_plots.py",
        "turn = index // len(COLORS)",
        "turn = 0",
        "tests/api/test_plots.py -k look_the_same",
    ),
    Mutant(
        "runs of different lengths are extended to the longest",
        "api/run_curves.py",
        "end = min(float(curve.x[-1]) for curve in curves)",
        "end = max(float(curve.x[-1]) for curve in curves)",
        "tests/api/test_plots.py -k all_runs_cover",
    ),
    Mutant(
        "the band is a standard deviation",
        "api/run_curves.py",
        "y.std(0, ddof=1) / math.sqrt(len(curves))",
        "y.std(0, ddof=1)",
        "tests/api/test_plots.py -k student",
    ),
    Mutant(
        "a misspelled hook is ignored",
        "api/arguments.py",
        "        check_hooks(callback)\n",
        "",
        "tests/api/test_managed.py -k callbacks",
    ),
    Mutant(
        "running statistics of a wrapper cause no warning",
        "envs/checking.py",
        '== "RunningMeanStd"',
        '== "None"',
        "tests/envs/test_checking.py -k statistics",
    ),
    Mutant(
        "a checkpoint of a newer format counts as damaged",
        MANAGER,
        "except FormatError:\n            raise\n        except",
        "except",
        "tests/faults/test_damage.py -k newer_format_is_refused",
    ),
    Mutant(
        "a damaged checkpoint loses its replay files",
        "runtime/checkpoint_writer.py",
        "used = self._damaged_rows.union(",
        "used = set().union(",
        "tests/faults/test_damage.py -k keep_their_replay_files",
    ),
    Mutant(
        "a second fallback overwrites a damaged checkpoint",
        "runtime/checkpoint_writer.py",
        "while os.path.lexists(aside):",
        "remove(aside)\n    while False:",
        "tests/faults/test_damage.py -k keep_their_replay_files",
    ),
    Mutant(
        "a kill during a swap loses the checkpoint",
        "runtime/checkpoint_writer.py",
        "if not os.path.lexists(path):",
        "if False:",
        "tests/faults/test_odd_runs.py -k during_a_swap",
    ),
    Mutant(
        "a signal hides an early stop in the same step",
        "runtime/trainer_state.py",
        "if not self.should_stop or signaled:",
        "if not self.should_stop:",
        "tests/runtime/test_exact_resume.py -k in_the_last_step",
    ),
    Mutant(
        "a repeated evaluation is logged twice",
        "runtime/logging.py",
        "(rows is None or at_step <= rows)",
        "True",
        f"{PHASES} -k first_evaluation",
    ),
    Mutant(
        "fine-tuning evaluates before its first checkpoint",
        TRAINER,
        "self.state.evaluation_owed |= wanted\n",
        "self.state.evaluation_owed |= wanted\n        self.run_pending_evaluation()\n",
        f"{PHASES} -k first_evaluation",
    ),
    Mutant(
        "fine-tuning the current folder creates the run inside its source",
        MANAGER,
        'named = run_dir.name not in ("", "..")',
        "named = True",
        f"{PHASES} -k next_to_its_source",
    ),
    Mutant(
        "a damaged line of metrics is accepted",
        "runtime/logging.py",
        "and _all_numbers(row)",
        "",
        "tests/faults/test_damage.py -k damaged_metrics_line",
    ),
    Mutant(
        "predicted actions are not written atomically",
        "boundary/writing.py",
        "if file.exists() and not file.is_file():",
        "if True:",
        "tests/faults/test_disk.py -k written_atomically",
    ),
    Mutant(
        "the advice after a reached target is to increase patience",
        "api/resuming.py",
        '"target_value" if stop.kind is StopKind.TARGET_REACHED else "patience"',
        '"patience"',
        "tests/runtime/test_control_config.py -k advice",
    ),
    Mutant(
        "an expanded tensor's pages are released beyond its memory",
        PT,
        "and chunk.flags.c_contiguous:",
        "and True:",
        f"{ODD_DATA} -k only_memory",
    ),
    Mutant(
        "HDF5 writes the file itself and crashes on a full disk",
        "data/dataset_writers.py",
        'h5py.File(stream, "w")',
        'h5py.File(stream.name, "w")',
        f"{ODD_DATA} -k full_disk",
    ),
    Mutant(
        "memory is allocated for the size in a header",
        NPZ,
        "if present != self.bytes:",
        "if False:",
        f"{ODD_DATA} -k made_up",
    ),
    Mutant(
        "the last of two arrays with the same name is used",
        NPZ,
        "if name in members:",
        "if False:",
        f"{ODD_DATA} -k twice",
    ),
    Mutant(
        "NaN is accepted as noise",
        "api/datasets.py",
        "not 0 <= noise < math.inf",
        "noise < 0",
        f"{ODD_DATA} -k deviation",
    ),
    Mutant(
        "a refused Minari id is registered anyway",
        "data/dataset_writers.py",
        "_remove_created(missing)",
        "pass",
        f"{ODD_DATA} -k leaves_no_folder",
    ),
    Mutant(
        "the return scale of moved data cannot be computed",
        "api/finetuning.py",
        "if dataset is None:\n            raise",
        "if True:\n            raise",
        f"{PHASES} -k changed_data",
    ),
    Mutant(
        "environment arguments from a file are not checked",
        "envs/resolving.py",
        "_check_kwargs(env_id, options)",
        "pass",
        f"{RESOLVING} -k from_a_forged_config",
    ),
    Mutant(
        "an allowed argument allows every value",
        "envs/resolving.py",
        "return values is not None and _as_json(value) in values",
        "return values is not None",
        f"{RESOLVING} -k value_and_position",
    ),
    Mutant(
        "reading a file imports gymnasium-robotics",
        "envs/resolving.py",
        "if env_id not in _named.ids:\n        raise",
        "if False:\n        raise",
        f"{RESOLVING} -k users_only",
    ),
    Mutant(
        "a module in the current folder is imported as gymnasium-robotics",
        "envs/resolving.py",
        "        _check_installed(env_id)",
        "        pass",
        f"{RESOLVING} -k current_folder",
    ),
    Mutant(
        "a checkpoint starts a download",
        "experiment/config.py",
        "if not config.parts.data.dataset_download:",
        "if True:",
        f"{RESOLVING} -k download",
    ),
    Mutant(
        "overrides on resume are not recorded",
        "api/resuming.py",
        "name_overrides(config.env_id, overrides)",
        "pass",
        f"{RESOLVING} -k command_line",
    ),
    Mutant(
        "python -m imports from the current folder first",
        "__main__.py",
        "del sys.path[0]",
        "pass",
        f"{RESOLVING} -k imported_from",
    ),
    Mutant(
        "a checkpoint is durable before the metrics that it depends on",
        TRAINER,
        "self.logger.sync()",
        "pass",
        "tests/faults/test_durability.py",
    ),
    Mutant(
        "a run is renamed before its first checkpoint",
        "api/training.py",
        "session.save_initial()\n            run_dir = name_run(folder, config)",
        "run_dir = name_run(folder, config)\n            session.checkpoint_path = run_dir",
        f"{PHASES} -k killed_at_its_start",
    ),
    Mutant(
        "a run without steps resumes with another episode",
        "runtime/collector.py",
        'if state["environments"] is None and len(self.buffer) == 0:',
        "if False:",
        f"{PHASES} -k killed_at_its_start",
    ),
    Mutant(
        "a removed run folder is created again",
        "runtime/checkpoint_writer.py",
        "if self.last_step is None:\n            self._make_folders()",
        "self._folder.mkdir(parents=True, exist_ok=True)\n        self._make_folders()",
        "tests/faults/test_odd_runs.py -k folder_is_removed",
    ),
    Mutant(
        "sys.exit in a callback leaves the state running",
        "api/training.py",
        "except BaseException as error:\n        refused",
        "except Exception as error:\n        refused",
        "tests/faults/test_odd_runs.py -k every_exit",
    ),
    Mutant(
        "a listing creates lock files",
        MANAGER,
        "if file.is_symlink() or not file.is_file():\n        return False\n    ",
        "",
        "tests/faults/test_odd_runs.py -k lock_that_is_not_a_file",
    ),
    Mutant(
        "prints mix with the JSON object",
        "boundary/terminal.py",
        "os.dup2(2, 1)",
        "pass",
        "tests/faults/test_terminal.py -k only_json",
    ),
    Mutant(
        "a broken display ends training",
        "boundary/terminal.py",
        "self.failure = error\n                break",
        "raise",
        "tests/faults/test_terminal.py -k without_a_display",
    ),
    Mutant(
        "control characters reach the terminal",
        "text.py",
        'frozenset({"Cc", "Cf",',
        "frozenset({",
        "tests/faults/test_terminal.py -k control_characters",
    ),
    Mutant(
        "markup in a name is interpreted",
        "boundary/terminal.py",
        "markup=False, emoji=False",
        "markup=True, emoji=False",
        "tests/faults/test_terminal.py -k markup",
    ),
    Mutant(
        "true and '16' are accepted as numbers",
        "config_model.py",
        "_EXACT = ConfigDict(strict=True)",
        "_EXACT = ConfigDict(strict=False)",
        f"{STRICT} -k declared_types",
    ),
    Mutant(
        "any learning rate is accepted",
        "algorithms/config.py",
        "Field(gt=0, le=10)",
        "Field(gt=0)",
        f"{STRICT} -k invalid_values",
    ),
    Mutant(
        "numbers beyond float32 are accepted",
        "config_model.py",
        "if is_float and not SMALLEST_FLOAT <= abs(value) <= LARGEST_FLOAT:",
        "if False:",
        f"{STRICT} -k invalid_values",
    ),
    Mutant(
        "a recursive value is copied endlessly",
        "experiment/plain_values.py",
        "if id(value) in inside:",
        "if False:",
        f"{STRICT} -k recursive_value",
    ),
    Mutant(
        "required memory is not compared with available memory",
        "experiment/memory.py",
        "if total <= available:",
        "if True:",
        f"{ALLOCATIONS} -k do_not_fit",
    ),
    Mutant(
        "a run that just fits is refused",
        "experiment/memory.py",
        "if total <= available:",
        "if total < available:",
        f"{ALLOCATIONS} -k just_fits",
    ),
    Mutant(
        "a checkpoint's config may describe any learner",
        "experiment/saved_run.py",
        "if weights > saved:",
        "if False:",
        f"{ALLOCATIONS} -k forged_config",
    ),
    Mutant(
        "a warm-up may last longer than its schedule",
        "experiment/task.py",
        "if schedule.warmup > schedule.horizon:",
        "if False:",
        f"{ALLOCATIONS} -k warm_up",
    ),
    Mutant(
        "a run with a long warm-up cannot be resumed",
        "api/resuming.py",
        "starts=horizons[0] != horizons[1]",
        "starts=True",
        f"{ALLOCATIONS} -k long_warm_up_resumes",
    ),
    Mutant(
        "stored observations share memory with the environment",
        "envs/guard.py",
        "return np.array(obs), reward,",
        "return obs, reward,",
        "tests/envs/test_boundary.py -k return_the_same_array",
    ),
    Mutant(
        "float32 rounding moves an action beyond its bound",
        "envs/actions.py",
        "last = np.where(last > high, np.nextafter(last, np.float32(-np.inf)), last)",
        "pass",
        "tests/envs/test_boundary.py -k bound",
    ),
    Mutant(
        "settings of an environment affect training",
        "envs/guard.py",
        "                _apply(before)",
        "                pass",
        "tests/envs/test_boundary.py -k settings",
    ),
    Mutant(
        "an environment's info is mistaken for the wrapper's",
        "envs/state.py",
        "kept=(OWN_RETURN,) if transformed else ()",
        "kept=(OWN_RETURN,)",
        "tests/envs/test_boundary.py -k returns_ignore_keys",
    ),
    Mutant(
        "an environment ends the program",
        "envs/guard.py",
        "FAILURES = (Exception, SystemExit)",
        "FAILURES = (Exception,)",
        "tests/envs/test_boundary.py -k exit",
    ),
    Mutant(
        "a truncated generator state is replaced by a new seed",
        "data/generators.py",
        "if found not in known:",
        "if not isinstance(state, np.ndarray) or state.dtype != np.uint8:",
        "tests/envs/test_state.py -k damaged_generator",
    ),
    Mutant(
        "a generator with an even increment is accepted",
        "envs/state.py",
        'and state["state"]["inc"] % 2 == 1',
        "",
        "tests/envs/test_state.py -k generator_of_an_environment",
    ),
    Mutant(
        "importance weights favor frequently drawn rows",
        PRIORITIES,
        ".pow(self._beta)",
        ".pow(-self._beta)",
        PRIORITIZED,
    ),
    Mutant(
        "priorities never decrease",
        PRIORITIES,
        "        self.values.index_fill_(0, rows, 0.0)\n",
        "",
        PRIORITIZED,
    ),
    Mutant(
        "new transitions do not get the largest priority",
        PRIORITIES,
        "self.values[start:stop] = self.largest",
        "self.values[start:stop] = 1.0",
        PRIORITIZED,
    ),
    Mutant(
        "errors of recorded rows are used as priorities",
        MIXING,
        "itemgetter(slice(from_dataset, None))",
        "itemgetter(slice(from_replay))",
        PRIORITIZED,
    ),
    Mutant(
        "critics ignore the importance weights",
        BASE,
        "critic_loss(q, target, importance_weights(batch))",
        "critic_loss(q, target)",
        "tests/algorithms/test_importance_weights.py",
    ),
]


def main() -> None:
    """Run all mutants, or those that match the words; exit with 1 if one survives."""
    words = sys.argv[1:] or [""]
    chosen = [m for m in MUTANTS if any(w in f"{m.trap} {m.file} {m.tests}" for w in words)]
    os.environ["OMP_NUM_THREADS"] = "1"
    for module in ("gymnasium", "hypothesis", "pydantic", "torch"):  # once, for all forks
        importlib.import_module(module)
    waiting, survivors = list(reversed(chosen)), 0
    running: dict[int, Attempt] = {}
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            attempt = Attempt(waiting.pop())
            running[attempt.pid] = attempt
        pid, status = os.wait()
        attempt = running.pop(pid)
        survivors += (alive := attempt.survived(status))
        print(f"{'SURVIVED' if alive else 'killed  '}  {attempt.mutant.trap}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants killed")
    sys.exit(survivors > 0)


class Attempt:
    """The tests of a mutant, in a forked process that imports a broken copy of the sources."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self._output, copy = folder / "output", folder / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        file = copy / "rl_training" / mutant.file
        text = file.read_text()
        if mutant.old not in text:
            raise SystemExit(f"{mutant.file} has no {mutant.old!r}: bring the mutant up to date")
        file.write_text(text.replace(mutant.old, mutant.new))
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 3
            try:
                status = _run_tests(mutant, copy, self._output)
            finally:
                os._exit(status)

    def survived(self, status: int) -> bool:
        """Return whether the tests pass although the code is broken."""
        code, output = os.waitstatus_to_exitcode(status), self._output.read_text()
        self._folder.cleanup()
        if code not in (0, 1):
            raise SystemExit(f"the tests did not run for {self.mutant.trap!r}:\n{output[-2000:]}")
        return code == 0


def _run_tests(mutant: Mutant, sources: Path, output: Path) -> int:
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = str(sources)
    sys.path.insert(0, str(sources))
    descriptor = os.open(output, os.O_CREAT | os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *mutant.tests.split()]))


if __name__ == "__main__":
    main()
