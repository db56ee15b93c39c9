"""Mutants of DQN and of action masks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MASKS = "algorithms/action_masks.py"
CATEGORICAL = "models/categorical.py"
DQN = "algorithms/dqn.py"
COLLECTOR = "runtime/collector.py"
ACTING = "runtime/acting.py"
GOLDEN = "tests/algorithms/test_dqn.py"
UNIT = "tests/algorithms/test_action_masks.py"
RUNS = "tests/runtime/test_action_masks.py"
ENVS = "tests/envs/test_action_masks.py"

EXTENSIONS = "tests/algorithms/test_dqn_extensions.py"

MUTANTS = [
    Mutant(
        "the mean advantage is not subtracted",
        "models/dueling.py",
        "value + advantages - advantages.mean(-2, keepdim=True)",
        "value + advantages",
        f"{EXTENSIONS} -k reference",
    ),
    Mutant(
        "the mean advantage is taken over quantiles instead of actions",
        "models/dueling.py",
        "advantages.mean(-2, keepdim=True)",
        "advantages.mean(-1, keepdim=True)",
        f"{EXTENSIONS} -k reference",
    ),
    Mutant(
        "the hidden layers of the streams are linear",
        "models/dueling.py",
        "training=training).relu()",
        "training=training)",
        f"{EXTENSIONS} -k reference",
    ),
    Mutant(
        "the outputs of the streams are not projected",
        "models/dueling.py",
        "[*inner, params[-4], params[-2]] if inner else []",
        "inner",
        f"{EXTENSIONS} -k projected",
    ),
    Mutant(
        "actions are compared by their lowest quantile",
        "models/q_network.py",
        "self.quantiles(obs, flat).mean(-1)",
        "self.quantiles(obs, flat)[..., 0]",
        f"{EXTENSIONS} -k reference",
    ),
    Mutant(
        "the target's action is chosen by its lowest quantile",
        DQN,
        "if double else target.mean(-1)",
        "if double else target[..., 0]",
        f"{EXTENSIONS} -k reference",
    ),
    Mutant(
        "priorities are the errors of the lowest quantile",
        DQN,
        "values.detach().mean(-1), target.mean(-1)",
        "values.detach()[..., 0], target[..., 0]",
        f"{EXTENSIONS} -k reference",
    ),
    Mutant(
        "a single value is fitted with the quantile loss, which halves the gradient",
        DQN,
        "if values.shape[-1] == 1:",
        "if False:",
        GOLDEN,
    ),
    Mutant(
        "quantiles ignore the importance weights",
        DQN,
        "quantile_loss(values.unsqueeze(-3), target, weights)",
        "quantile_loss(values.unsqueeze(-3), target)",
        f"{EXTENSIONS} -k reference",
    ),
    Mutant(
        "hidden_sizes of dueling streams raises an error with another trunk",
        DQN,
        'return key == "hidden_sizes" and self.dueling',
        "return False",
        f"{EXTENSIONS} -k belong",
    ),
    Mutant(
        "illegal actions get probability 1 if all values are very low",
        CATEGORICAL,
        "torch.finfo(values.dtype).min",
        "-1.0",
        f"{UNIT} -k softmax",
    ),
    Mutant(
        "the value of an illegal action is infinite, so that 0 · log 0 is NaN",
        CATEGORICAL,
        "torch.finfo(values.dtype).min",
        "-torch.inf",
        f"{UNIT} -k softmax",
    ),
    Mutant(
        "random actions are drawn from the first actions instead of the legal ones",
        MASKS,
        "return (count <= rank.unsqueeze(-1)).sum(-1).to(uniform.dtype)",
        "return rank",
        f"{UNIT} -k random",
    ),
    Mutant(
        "a random action may be the one after the last legal one",
        MASKS,
        "(count <= rank.unsqueeze(-1))",
        "(count < rank.unsqueeze(-1) + 2)",
        f"{UNIT} -k largest",
    ),
    Mutant(
        "the target uses illegal actions",
        DQN,
        "choosing_q = legal_only(choosing_q, next_legal_actions(batch))",
        "pass",
        f"{GOLDEN} -k legal",
    ),
    Mutant(
        "the greedy action may be illegal",
        DQN,
        "legal_only(self.model.q_values(obs), legal)",
        "self.model.q_values(obs)",
        f"{GOLDEN} -k legal",
    ),
    Mutant(
        "a random action of the policy may be illegal",
        "algorithms/epsilon_greedy.py",
        "uniform_actions(uniform, self.spec.action_dim, legal)",
        "uniform_actions(uniform, self.spec.action_dim, None)",
        f"{GOLDEN} -k legal",
    ),
    Mutant(
        "random play before learning_starts may be illegal",
        ACTING,
        "uniform_actions(uniform.squeeze(-1), spec.action_dim, legal)",
        "uniform_actions(uniform.squeeze(-1), spec.action_dim, None)",
        f"{RUNS} -k stored",
    ),
    Mutant(
        "the mask at a time limit is that of the next episode",
        COLLECTOR,
        'true_legal[finished] = infos["final_info"][ACTION_MASK][finished]',
        "pass",
        f"{RUNS} -k stored",
    ),
    Mutant(
        "the stored mask is that of the next observation",
        COLLECTOR,
        "(self._legal, true_legal)",
        "(true_legal, true_legal)",
        f"{RUNS} -k stored",
    ),
    Mutant(
        "a resumed run starts with the masks of a new episode",
        COLLECTOR,
        'self._legal = matching_array(state["legal_actions"], self._legal, "legal_actions")',
        'matching_array(state["legal_actions"], self._legal, "legal_actions")',
        f"{RUNS} -k exact",
    ),
    Mutant(
        "n-step targets use the mask of the first step",
        "data/fields.py",
        'elif name in ("truncations", "next_legal_actions"):',
        'elif name in ("truncations",):',
        f"{RUNS} -k stored",
    ),
    Mutant(
        "the mask of a single action loses its axis",
        "data/rows.py",
        "values.shape[-1] == 1 and name not in MASK_FIELDS",
        "values.shape[-1] == 1",
        f"{RUNS} -k axis",
    ),
    Mutant(
        "a reward transform drops the mask at the end of an episode",
        "envs/reward_wrappers.py",
        "info = {**kept, OWN_RETURN: self.total}",
        "info = {OWN_RETURN: self.total}",
        f"{RUNS} -k wrapper",
    ),
    Mutant(
        "the check before a run steps with an illegal action",
        "envs/checking.py",
        'action[0] = read_action_mask(info, spec.action_dim, "reset").argmax()',
        'read_action_mask(info, spec.action_dim, "reset")',
        f"{ENVS} -k checked_step",
    ),
    Mutant(
        "a mask without a legal action is accepted",
        "envs/contract.py",
        "if not legal.any():",
        "if False:",
        f"{ENVS} -k wrong_mask",
    ),
    Mutant(
        "evaluation ignores the masks",
        "runtime/evaluation.py",
        "action = policy(obs) if legal is None else policy(obs, legal)",
        "action = policy(obs)",
        f"{RUNS} -k evaluation_uses",
    ),
    Mutant(
        "a run of an earlier version starts to use masks when it is resumed",
        "api/resuming.py",
        "use_masks=masked)",
        "use_masks=True)",
        f"{RUNS} -k old_run",
    ),
    Mutant(
        "a checkpoint with an empty mask can be resumed",
        COLLECTOR,
        "if not self._legal.any(axis=1).all():",
        "if False:",
        f"{RUNS} -k damaged",
    ),
]
