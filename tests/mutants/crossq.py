"""Mutants of CrossQ."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CROSSQ = "algorithms/crossq.py"
TESTS = "tests/algorithms/test_crossq.py"
BATCH_NORM = "models/batch_norm.py"
TRUNKS = "tests/models/test_trunks.py -k renormalization"
INITIAL = "tests/models/test_trunks.py -k initialized"

MUTANTS = [
    Mutant(
        "a gradient through the target of the same pass",
        CROSSQ,
        "    next_q = next_q.detach()\n",
        "",
        TESTS,
    ),
    Mutant(
        "the values at both states swapped",
        CROSSQ,
        "q, next_q = model.q_values(obs, actions)",
        "next_q, q = model.q_values(obs, actions)",
        TESTS,
    ),
    Mutant(
        "the recorded action at the next state",
        CROSSQ,
        "torch.cat((batch.actions, following.actions))",
        "torch.cat((batch.actions, batch.actions))",
        TESTS,
    ),
    Mutant(
        "the policy updated with every update",
        CROSSQ,
        '{"actor": config.policy_delay}',
        '{"actor": 1}',
        TESTS,
    ),
    Mutant(
        "less momentum for the temperature too",
        CROSSQ,
        '{} if key == "temperature" else {"betas": BETAS}',
        '{"betas": BETAS}',
        TESTS,
    ),
    Mutant(
        "target critics that nothing updates",
        CROSSQ,
        "target=False",
        "target=True",
        TESTS,
    ),
    Mutant(
        "networks for images without LayerNorm",
        CROSSQ,
        '{"layer_norm": True} | options',
        "options",
        TESTS,
    ),
    Mutant(
        "the running deviation in renormalization without ε",
        BATCH_NORM,
        "running = (running_variance + options.eps).sqrt()",
        "running = running_variance.sqrt()",
        TRUNKS,
    ),
    Mutant(
        "the correction of the mean shrinks with small variances",
        BATCH_NORM,
        "(mean - running_mean) / running",
        "(mean - running_mean) / running * (variance.sqrt() / deviation)",
        TRUNKS,
    ),
    Mutant(
        "initial weights with the deviation of the normal before its truncation",
        "models/mlp.py",
        "(TRUNCATED_DEVIATION * math.sqrt(weight.shape[-2]))",
        "math.sqrt(weight.shape[-2])",
        INITIAL,
    ),
    Mutant(
        "batch-normalized networks initialized like other perceptrons",
        BATCH_NORM,
        "initialize_truncated(params[:split], generator)",
        "initialize_layers(params[:split], generator)",
        INITIAL,
    ),
    Mutant(
        "the bound of the last layer ignored by batch-normalized networks",
        BATCH_NORM,
        "if self.last_layer_bound is not None:",
        "if False:",
        "tests/models/test_trunks.py -k last_layer",
    ),
]
