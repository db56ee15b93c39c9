"""Weights layer by layer, under readable names."""

from __future__ import annotations

from torch import Tensor, nn

from rl_training.models.actor_critic import ActorCriticModel
from rl_training.models.network import Network


def named_weights(module: nn.Module) -> dict[str, Tensor]:
    """Return the state of a module with views of the layers in place of the flat vectors.

    ``model.actor.flat`` becomes ``model.actor.layers.0.weight``, ``model.actor.layers.0.bias`` and
    so on; ``model.target`` becomes ``model.target.0.layers.0.weight`` and so on, where 0 is the
    first critic. All other tensors keep their names.
    """
    named = dict(module.state_dict())
    for path, owner in module.named_modules():
        if not isinstance(owner, Network | ActorCriticModel):
            continue
        for name, network in owner.vectors().items():
            is_own = name == "flat"
            place = path if is_own else _joined(path, name)
            state = network.state if is_own else {}
            vector = named.pop(_joined(path, name))
            for buffer in state:
                del named[_joined(path, buffer)]
            layers = network.named_tensors(vector, state)
            named |= {_joined(place, layer): tensor for layer, tensor in layers.items()}
    return named


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
