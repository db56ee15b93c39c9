"""Settings of the offline algorithms that are the same for rl_training and d3rlpy.

Where d3rlpy offers a choice, the paper's is used (docs/algorithms/): CQL with a fixed weight,
AWAC with a deeper actor, TD3+BC and BC on standardized observations, ReBRAC with LayerNorm in the
critics. ReBRAC's networks and batches are smaller than in the paper, so that five seeds take
minutes. Settings of d3rlpy without a counterpart here keep their defaults.
"""

from dataclasses import dataclass, field
from typing import Any

TWO, THREE, FOUR = [256] * 2, [256] * 3, [256] * 4
SMALL = [128] * 3


@dataclass(frozen=True)
class Case:
    """One algorithm: our `algo_kwargs`, and the fields of d3rlpy's config class.

    ``actor`` and ``critic`` are the widths of d3rlpy's encoders. ``peer`` is empty if d3rlpy does
    not have the algorithm.
    """

    ours: dict[str, Any]
    peer: dict[str, Any] = field(default_factory=dict)
    actor: list[int] = field(default_factory=lambda: TWO)
    critic: list[int] = field(default_factory=lambda: TWO)
    critic_layer_norm: bool = False
    updates: int = 10_000
    """Updates of a run that measures learning."""


def rates(actor: float = 3e-4) -> dict[str, float]:
    """Return d3rlpy's learning rates."""
    return {"actor_learning_rate": actor, "critic_learning_rate": 3e-4}


CASES = {
    "bc": Case(
        {"batch_size": 256, "hidden_sizes": TWO, "learning_rate": 3e-4, "normalize_states": True},
        {"batch_size": 256, "learning_rate": 3e-4},
    ),
    "iql": Case(
        {"batch_size": 256, "hidden_sizes": TWO, "learning_rate": 3e-4, "expectile": 0.7}
        | {"beta": 3.0, "weight_clip": 100.0},
        {"batch_size": 256, "expectile": 0.7, "weight_temp": 3.0, "max_weight": 100.0} | rates(),
    ),
    "td3_bc": Case(
        {"batch_size": 256, "hidden_sizes": TWO, "learning_rate": 3e-4, "alpha": 2.5}
        | {"policy_delay": 2, "target_noise": 0.2, "target_noise_clip": 0.5}
        | {"normalize_states": True},
        {"batch_size": 256, "alpha": 2.5, "update_actor_interval": 2}
        | {"target_smoothing_sigma": 0.2, "target_smoothing_clip": 0.5}
        | rates(),
    ),
    "rebrac": Case(
        {"batch_size": 128, "hidden_sizes": SMALL, "learning_rate": 1e-3}
        | {"actor_penalty": 0.1, "critic_penalty": 0.1, "policy_delay": 2}
        | {"target_noise": 0.2, "target_noise_clip": 0.5},
        {"batch_size": 128, "actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3}
        | {"actor_beta": 0.1, "critic_beta": 0.1, "update_actor_interval": 2}
        | {"target_smoothing_sigma": 0.2, "target_smoothing_clip": 0.5},
        actor=SMALL,
        critic=SMALL,
        critic_layer_norm=True,
    ),
    "awac": Case(
        {"batch_size": 1024, "hidden_sizes": FOUR, "critic_hidden_sizes": TWO}
        | {"learning_rate": 3e-4, "temperature": 1.0},
        {"batch_size": 1024, "lam": 1.0, "n_action_samples": 1} | rates(),
        actor=FOUR,
    ),
    "cql": Case(
        {"batch_size": 256, "hidden_sizes": THREE, "learning_rate": 3e-4}
        | {"policy_learning_rate": 1e-4, "conservative_weight": 5.0, "num_sampled_actions": 10},
        {"batch_size": 256, "conservative_weight": 5.0, "n_action_samples": 10}
        | {"temp_learning_rate": 1e-4, "alpha_learning_rate": 0.0, "initial_alpha": 1.0}
        | rates(actor=1e-4),
        actor=THREE,
        critic=THREE,
        updates=3_000,
    ),
    "edac": Case(
        {"batch_size": 256, "hidden_sizes": THREE, "learning_rate": 3e-4, "num_critics": 10}
        | {"eta": 1.0}
    ),
}
WITH_PEER = [name for name, case in CASES.items() if case.peer]


def our_config(name: str, env_id: str, dataset: str, updates: int) -> dict[str, Any]:
    """Return a complete config for `rl_training.train`."""
    return {
        "algo": name,
        "env_id": env_id,
        "total_timesteps": updates,
        "algo_kwargs": {**CASES[name].ours, "dataset_kind": "npz", "dataset_path": dataset},
    }


def peer_spec(name: str) -> dict[str, Any]:
    """Return the settings for `peers/d3rlpy_peer.py`."""
    case = CASES[name]
    return {
        "algo": name,
        "config": case.peer,
        "actor": case.actor,
        "critic": case.critic,
        "critic_layer_norm": case.critic_layer_norm,
        "normalize": bool(case.ours.get("normalize_states")),
    }
