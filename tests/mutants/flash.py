"""Mutants of FlashSAC's parts: its trunk, projections, critics, exploration and schedule."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TRUNK = "models/flash.py"
TRUNK_TESTS = "tests/models/test_flash.py"
OPTIMIZERS = "algorithms/optimizers.py"
DECAY_TESTS = "tests/algorithms/test_optimizers.py"
CATEGORICAL = "algorithms/return_bins.py"
CATEGORICAL_TESTS = "tests/algorithms/test_return_bins.py"
CRITICS = "models/critics.py"
FLASH_SAC = "algorithms/flash_sac.py"
FLASH_SAC_TESTS = "tests/algorithms/test_flash_sac.py"
HELD = "runtime/held_noise.py"
HELD_TESTS = "tests/runtime/test_held_noise.py"
ACTING = "runtime/acting.py"
NORMALIZATION = "normalization.py"
BASE = "algorithms/base.py"
BOUND_TESTS = "tests/test_normalization.py"

MUTANTS = [
    Mutant(
        "the running variance averages biased variances",
        TRUNK,
        "variance * (rows / max(1, rows - 1))",
        "variance",
        TRUNK_TESTS,
    ),
    Mutant(
        "a batch is normalized with its unbiased variance",
        TRUNK,
        "scale * (variance + eps).rsqrt())",
        "scale * (variance * (rows / (rows - 1)) + eps).rsqrt())",
        TRUNK_TESTS,
    ),
    Mutant(
        "the running mean moves toward the newest batch too fast",
        TRUNK,
        "running_mean.lerp_(mean, momentum)",
        "running_mean.lerp_(mean, 1.0 - momentum)",
        TRUNK_TESTS,
    ),
    Mutant(
        "evaluation ignores the running mean",
        TRUNK,
        "shift - running_mean * factor",
        "shift",
        TRUNK_TESTS,
    ),
    Mutant(
        "a block has no activation after its second normalization",
        TRUNK,
        "x = x + self.activation(norm(_product(hidden, params[i + 1]), i + 1))",
        "x = x + norm(_product(hidden, params[i + 1]), i + 1)",
        TRUNK_TESTS,
    ),
    Mutant(
        "a block has no skip",
        TRUNK,
        "x = x + self.activation(",
        "x = self.activation(",
        TRUNK_TESTS,
    ),
    Mutant(
        "RMSNorm subtracts the mean",
        TRUNK,
        "x.square().mean(-1, keepdim=True) + RMS_EPS",
        "x.var(-1, keepdim=True) + RMS_EPS",
        TRUNK_TESTS,
    ),
    Mutant(
        "initial weights keep their norms",
        TRUNK,
        "weight.div_(weight.square().sum(-2, keepdim=True).sqrt())",
        "pass",
        TRUNK_TESTS,
    ),
    Mutant(
        "scale and shift are projected separately",
        OPTIMIZERS,
        "squares = torch.cat(norms, dim=-1).square().sum(-1, keepdim=True)",
        "squares = norms[0].square().sum(-1, keepdim=True)",
        TRUNK_TESTS,
    ),
    Mutant(
        "norms are projected to 1",
        OPTIMIZERS,
        "factor = norms[0].shape[-1] ** 0.5 * (squares",
        "factor = (squares",
        TRUNK_TESTS,
    ),
    Mutant(
        "the larger projection leaves the weights",
        OPTIMIZERS,
        "    project_unit_rows(network, flat)\n    for",
        "    for",
        TRUNK_TESTS,
    ),
    Mutant(
        "the distribution of the critic with the higher mean",
        CATEGORICAL,
        "means.argmin(",
        "means.argmax(",
        CATEGORICAL_TESTS,
    ),
    Mutant(
        "atoms beyond the last bin lose their probability on a GPU",
        CATEGORICAL,
        "torch.minimum(torch.maximum(values, first), last)",
        "values",
        CATEGORICAL_TESTS,
    ),
    Mutant(
        "the shares of the two bins swapped",
        CATEGORICAL,
        "probs * (place - lower)",
        "probs * (1.0 - (place - lower))",
        CATEGORICAL_TESTS,
    ),
    Mutant(
        "target critics move the running statistics",
        CRITICS,
        "value.clone() for name, value in self.state.items()",
        "value for name, value in self.state.items()",
        CATEGORICAL_TESTS,
    ),
    Mutant(
        "critics updated before the actor",
        FLASH_SAC,
        '        if "actor" in due:\n',
        '        yield self.critic_stage(batch, noise)\n        if "actor" in due:\n',
        FLASH_SAC_TESTS,
    ),
    Mutant(
        "the actor sees only s",
        FLASH_SAC,
        "torch.cat((batch.obs, batch.next_obs))",
        "torch.cat((batch.obs, batch.obs))",
        FLASH_SAC_TESTS,
    ),
    Mutant(
        "the actor acts at s prime in its loss",
        FLASH_SAC,
        "output.chunk(2, dim=-2)[0]",
        "output.chunk(2, dim=-2)[1]",
        FLASH_SAC_TESTS,
    ),
    Mutant(
        "the target is the distribution at s",
        FLASH_SAC,
        "probs.chunk(2, dim=-2)[1]",
        "probs.chunk(2, dim=-2)[0]",
        FLASH_SAC_TESTS,
    ),
    Mutant(
        "target critics in evaluation mode",
        FLASH_SAC,
        "training = critic.is_training(critic.flat)\n    target",
        "training = False\n    target",
        FLASH_SAC_TESTS,
    ),
    Mutant(
        "the temperature loss on log alpha",
        FLASH_SAC,
        "alpha_loss(log_alpha.exp(),",
        "alpha_loss(log_alpha,",
        FLASH_SAC_TESTS,
    ),
    Mutant(
        "the target entropy of SAC",
        FLASH_SAC,
        'if config.target_entropy == "auto":',
        "if False:",
        FLASH_SAC_TESTS,
    ),
    Mutant(
        "the learning rate decays with the next step",
        OPTIMIZERS,
        "        rate = self._decayed_rate()\n        self.steps.add_(1)",
        "        self.steps.add_(1)\n        rate = self._decayed_rate()",
        DECAY_TESTS,
    ),
    Mutant(
        "the learning rate rises again after its decay",
        OPTIMIZERS,
        ".clamp_max(1.0)\n        shape",
        "\n        shape",
        DECAY_TESTS,
    ),
    Mutant(
        "durations as probable as their inverse",
        HELD,
        "pow(-2)",
        "pow(-1)",
        HELD_TESTS,
    ),
    Mutant(
        "noise held one step too long",
        HELD,
        "ends = remaining <= 0",
        "ends = remaining < 0",
        HELD_TESTS,
    ),
    Mutant(
        "held noise forgotten in checkpoints",
        ACTING,
        'self._held.load_state_dict(state["held_noise"])',
        "pass",
        HELD_TESTS,
    ),
    Mutant(
        "the bound on returns ignores the largest one",
        NORMALIZATION,
        "torch.maximum(deviation, largest / bound)",
        "deviation",
        BOUND_TESTS,
    ),
    Mutant(
        "the largest return of the last step only",
        BASE,
        "torch.maximum(self.largest_return, returns.abs().amax(), out=self.largest_return)",
        "self.largest_return.copy_(returns.abs().amax())",
        BOUND_TESTS,
    ),
]
