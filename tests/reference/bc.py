"""Float64 behavior cloning with a deterministic tanh actor and hand-derived gradients."""

from typing import TypedDict

from .nn import (
    Array,
    Batch,
    MlpAdam,
    MlpGrads,
    Network,
    adam_network,
    checked_batch,
    copy_network,
    fresh_adam,
    sizes,
    tanh_backward,
    tanh_forward,
)


class BcState(TypedDict):
    """Everything an update reads and writes."""

    actor: Network
    actor_adam: MlpAdam


class Hyper(TypedDict):
    """Adam's betas and eps are the defaults of ``adam_step``."""

    actor_lr: float


def normalization(observations: Array, eps: float = 1e-3) -> tuple[Array, Array]:
    """Mean and deviation + eps of each feature of a dataset [D, O]; the deviation is biased."""
    return observations.mean(axis=0), observations.std(axis=0) + eps


def imitation_loss(predicted: Array, action: Array) -> tuple[float, Array]:
    """mean_{b,j} (mu(s)_j - a_j)^2 over rows and action axes, and its gradient at mu(s)."""
    error = predicted - action
    return float((error * error).mean()), 2.0 * error / error.size


def actor_loss(actor: Network, observation: Array, action: Array) -> tuple[float, MlpGrads]:
    """The imitation loss and its gradient at the actor's parameters."""
    predicted, cache = tanh_forward(actor, observation)
    loss, grad = imitation_loss(predicted, action)
    return loss, tanh_backward(cache, predicted, grad)


def initial_state(actor: Network) -> BcState:
    """State before the first update: a float64 copy and zero moments."""
    return {"actor": copy_network(actor), "actor_adam": fresh_adam(actor)}


def full_update(state: BcState, batch: Batch, hyper: Hyper) -> tuple[BcState, dict[str, float]]:
    """One Adam step of the actor. The input state is not modified."""
    batch = checked_batch(batch, *sizes(state["actor"]))
    loss, grads = actor_loss(state["actor"], batch["observation"], batch["action"])
    actor, adam = adam_network(
        state["actor"], grads.network, state["actor_adam"], hyper["actor_lr"]
    )
    return {"actor": actor, "actor_adam": adam}, {"actor_loss": loss}
