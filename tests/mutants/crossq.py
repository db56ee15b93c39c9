"""Mutants of CrossQ."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CROSSQ = "algorithms/crossq.py"
TESTS = "tests/algorithms/test_crossq.py"

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
]
