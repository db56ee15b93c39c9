"""Networks with flat parameters, stacked ensembles and policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.lazy import lazy_exports

if TYPE_CHECKING:
    from rl_training.generated.models import *
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "actor_critic": [
                *("ActorCriticModel", "BinnedActorCritic", "GaussianActorCritic"),
                *("MLPIQLModel", "MLPREDQModel", "MLPSACModel", "MLPTD3Model"),
            ],
            "actors": [
                *("ActionSample", "DeterministicActor", "GaussianActor", "SquashedGaussianActor"),
                "TanhMeanGaussianActor",
            ],
            "categorical": [
                *("CategoricalActor", "CategoricalActorCritic", "DiscreteCritic"),
                *("DiscreteIQLModel", "DiscreteQModel"),
            ],
            "critics": ["BinnedCritic", "EnsembleCritic"],
            "mlp": ["MLP"],
            "network": ["FlatModule", "Network", "Trunk"],
            "network_config": ["TrunkConfig"],
            "q_network": ["QNetwork"],
        },
    )
