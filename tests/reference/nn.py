"""Float64 ReLU networks, Adam and Polyak averaging with hand-derived gradients.

A network is a mapping from a kind of parameter to its arrays, layer by layer; so are its
gradients and its Adam moments. Arrays are batch first; ensembles are stacked in front.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]

# "weights" [in, out] and "biases" [out] of every layer; with LayerNorm also the "scales" and
# "shifts" [out] of every hidden layer; for a state-independent deviation "log_std", one [A].
Network: TypeAlias = dict[str, list[Array]]

LAYER_NORM_EPS = 1e-5  # PyTorch's default; Flax, which RLPD's authors use, has 1e-6


class Norm(NamedTuple):
    """Cache for the backward pass of a layer normalization."""

    normalized: Array
    inverse_std: Array
    scale: Array


class MlpCache(NamedTuple):
    """Cache for the backward pass: weights, inputs, LayerNorms and ReLU masks of the layers."""

    weights: list[Array]
    inputs: list[Array]
    norms: list[Norm]
    active: list[Array]
    norm_after: bool


class MlpGrads(NamedTuple):
    """Gradients with the shapes of the parameters and of the network input."""

    weights: list[Array]
    biases: list[Array]
    inputs: Array
    scales: list[Array]
    shifts: list[Array]
    norm_after: bool

    @property
    def network(self) -> Network:
        """The parameters' gradients in the layout of the network."""
        grads = {"weights": self.weights, "biases": self.biases}
        scales, shifts = norm_keys(self.norm_after)
        return grads | ({scales: self.scales, shifts: self.shifts} if self.scales else {})


def norm_keys(norm_after: bool) -> tuple[str, str]:
    """The keys of LayerNorm's parameters, which encode where the normalization is applied."""
    return ("scales_after", "shifts_after") if norm_after else ("scales", "shifts")


class MlpAdam(TypedDict):
    """Adam moments of one network, laid out like the network, and its step count."""

    m: Network
    v: Network
    t: int


class Ensemble(TypedDict):
    """Critics, their Adam moments and their targets, member by member."""

    critics: list[Network]
    critic_adams: list[MlpAdam]
    target_critics: list[Network]


class ActorCriticHyper(TypedDict):
    """Hyperparameters of all actor-critics; Adam's betas and eps have adam_step's defaults."""

    gamma: float
    tau: float
    actor_lr: float
    critic_lr: float


class Batch(TypedDict):
    """Transitions: [B, O], [B, A], [B], [B, O] and [B] (1.0 where s' is terminal)."""

    observation: Array
    action: Array
    reward: Array
    next_observation: Array
    termination: Array


def layer_norm(x: Array, scale: Array, shift: Array) -> tuple[Array, Norm]:
    """LayerNorm, arXiv 1607.06450: scale (x - mean) / sqrt(var + eps) + shift, over features.

    The variance is the biased one (divided by the number of features).
    """
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = (centered * centered).mean(axis=-1, keepdims=True)
    inverse_std = 1.0 / np.sqrt(variance + LAYER_NORM_EPS)
    normalized = centered * inverse_std
    return normalized * scale + shift, Norm(normalized, inverse_std, scale)


def layer_norm_backward(norm: Norm, grad: Array) -> Array:
    """With g = grad * scale and n the normalized input: (g - mean(g) - n mean(g n)) / std."""
    g, n = grad * norm.scale, norm.normalized
    along = (g * n).mean(axis=-1, keepdims=True)
    centered = g - g.mean(axis=-1, keepdims=True)
    return np.asarray((centered - n * along) * norm.inverse_std)


def mlp_forward(
    weights: Sequence[Array],
    biases: Sequence[Array],
    x: Array,
    scales: Sequence[Array] = (),
    shifts: Sequence[Array] = (),
    norm_after: bool = False,
) -> tuple[Array, MlpCache]:
    """Evaluate h_{i+1} = max(0, h_i W_i + b_i) with h_0 = x and no ReLU on the last layer.

    ``weights[i]`` is [in, out], ``biases[i]`` is [out] and ``x`` is [batch, in]. With scales
    and shifts, every hidden layer is h_{i+1} = max(0, LayerNorm_i(h_i W_i + b_i)) or, with
    ``norm_after``, h_{i+1} = LayerNorm_i(max(0, h_i W_i + b_i)).
    """
    h = np.asarray(x, dtype=np.float64)
    cache = MlpCache([], [], [], [], norm_after)
    last = len(weights) - 1
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        matrix = np.asarray(weight, dtype=np.float64)
        cache.weights.append(matrix)
        cache.inputs.append(h)
        h = h @ matrix + np.asarray(bias, dtype=np.float64)
        if i < last:
            if scales and not norm_after:
                h, norm = layer_norm(h, scales[i], shifts[i])
                cache.norms.append(norm)
            h = np.maximum(h, 0.0)
            cache.active.append((h > 0.0).astype(np.float64))
            if scales and norm_after:
                h, norm = layer_norm(h, scales[i], shifts[i])
                cache.norms.append(norm)
    return h, cache


def mlp_backward(cache: MlpCache, grad_out: Array) -> MlpGrads:
    """Chain rule: dW_i = h_i^T g_i, db_i = sum_b g_i, g_{i-1} = (g_i W_i^T) 1[h_i > 0].

    With LayerNorm after the ReLU, g_i W_i^T passes through the normalization first. ``grad_out``
    is the loss gradient at the output, [batch, out]; the ReLU slope at 0 is 0.
    """
    grad = np.asarray(grad_out, dtype=np.float64)
    grads = MlpGrads([], [], np.zeros(()), [], [], cache.norm_after)

    def through_norm(i: int, grad: Array) -> Array:
        grads.scales.insert(0, (grad * cache.norms[i].normalized).sum(axis=0))
        grads.shifts.insert(0, grad.sum(axis=0))
        return layer_norm_backward(cache.norms[i], grad)

    for i in reversed(range(len(cache.weights))):
        grads.weights.insert(0, cache.inputs[i].T @ grad)
        grads.biases.insert(0, grad.sum(axis=0))
        grad = grad @ cache.weights[i].T
        if i > 0:
            if cache.norms and cache.norm_after:
                grad = through_norm(i - 1, grad)
            grad = grad * cache.active[i - 1]
            if cache.norms and not cache.norm_after:
                grad = through_norm(i - 1, grad)
    return grads._replace(inputs=grad)


def forward(net: Network, x: Array) -> tuple[Array, MlpCache]:
    """``mlp_forward`` of a network's layers."""
    norm_after = "scales_after" in net
    scales, shifts = (net.get(key, []) for key in norm_keys(norm_after))
    return mlp_forward(net["weights"], net["biases"], x, scales, shifts, norm_after)


def tanh_forward(net: Network, x: Array) -> tuple[Array, MlpCache]:
    """The deterministic actor tanh(mlp(x)), in the model's action space [-1, 1]."""
    output, cache = forward(net, x)
    return np.tanh(output), cache


def tanh_backward(cache: MlpCache, action: Array, grad_action: Array) -> MlpGrads:
    """Through a = tanh(u): da/du = 1 - a^2, then the chain rule of the layers."""
    return mlp_backward(cache, grad_action * (1.0 - action * action))


def critic_outputs(
    critics: Sequence[Network], observation: Array, action: Array
) -> tuple[Array, list[MlpCache]]:
    """Every critic's output layer as [N, B, out]; its input is [observation, action]."""
    x = np.concatenate([observation, action], axis=-1)
    passes = [forward(critic, x) for critic in critics]
    return np.stack([output for output, _ in passes]), [cache for _, cache in passes]


def critic_values(
    critics: Sequence[Network], observation: Array, action: Array
) -> tuple[Array, list[MlpCache]]:
    """Q_i(s, a) of every critic as [N, B]; a critic's input is [observation, action]."""
    outputs, caches = critic_outputs(critics, observation, action)
    return outputs[:, :, 0], caches


def action_gradient(caches: Sequence[MlpCache], grad_outputs: Array, action_size: int) -> Array:
    """Sum over critics of the gradient at the action, [B, A], for [N, B, out] at the outputs."""
    pairs = zip(caches, grad_outputs, strict=True)
    total = sum(mlp_backward(cache, grad).inputs for cache, grad in pairs)
    return np.asarray(total)[:, -action_size:]


def copy_network(net: Network) -> Network:
    """A float64 copy of every array."""
    return {key: [np.array(x, dtype=np.float64) for x in arrays] for key, arrays in net.items()}


def fresh_adam(net: Network) -> MlpAdam:
    """Zero moments and step count 0."""

    def zeros() -> Network:
        return {key: [np.zeros(np.shape(x)) for x in arrays] for key, arrays in net.items()}

    return {"m": zeros(), "v": zeros(), "t": 0}


def initial_ensemble(
    critics: Sequence[Network], target_critics: Sequence[Network] | None = None
) -> Ensemble:
    """Float64 copies with zero moments; targets equal to the critics unless given."""
    targets = critics if target_critics is None else target_critics
    return {
        "critics": [copy_network(c) for c in critics],
        "critic_adams": [fresh_adam(c) for c in critics],
        "target_critics": [copy_network(c) for c in targets],
    }


def adam_step(
    param: Array,
    grad: Array,
    m: Array,
    v: Array,
    t: int,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> tuple[Array, Array, Array]:
    """Algorithm 1 of arXiv 1412.6980: param - lr m_hat / (sqrt(v_hat) + eps).

    ``t`` is the 1-based step after its increment. Returns the new (param, m, v); the inputs
    are not modified.
    """
    if t < 1:
        raise ValueError(f"t counts from 1, got {t}")
    new_m = np.asarray(beta1 * m + (1.0 - beta1) * grad, dtype=np.float64)
    new_v = np.asarray(beta2 * v + (1.0 - beta2) * grad * grad, dtype=np.float64)
    m_hat = new_m / (1.0 - beta1**t)
    v_hat = new_v / (1.0 - beta2**t)
    new_param = np.asarray(param - lr * m_hat / (np.sqrt(v_hat) + eps), dtype=np.float64)
    return new_param, new_m, new_v


def adam_network(
    net: Network, grads: Network, adam: MlpAdam, lr: float, weight_decay: float = 0.0
) -> tuple[Network, MlpAdam]:
    """One Adam step (arXiv 1412.6980, algorithm 1) of every array of a network.

    Weight decay is the L2 form: weight_decay * param joins the gradient of every array, biases
    included, before the moments.
    """
    t, m, v = adam["t"] + 1, adam["m"], adam["v"]
    steps = {
        key: [
            adam_step(p, g + weight_decay * p, m_old, v_old, t, lr)
            for p, g, m_old, v_old in zip(net[key], grads[key], m[key], v[key], strict=True)
        ]
        for key in net
    }

    def part(i: int) -> Network:
        return {key: [step[i] for step in values] for key, values in steps.items()}

    return part(0), {"m": part(1), "v": part(2), "t": t}


def adam_critics(
    critics: Sequence[Network],
    adams: Sequence[MlpAdam],
    caches: Sequence[MlpCache],
    grad_outputs: Array,
    lr: float,
) -> tuple[list[Network], list[MlpAdam]]:
    """One Adam step of every critic from the loss gradient [N, B, out] at their outputs."""
    steps = [
        adam_network(critic, mlp_backward(cache, grad).network, adam, lr)
        for critic, adam, cache, grad in zip(critics, adams, caches, grad_outputs, strict=True)
    ]
    return [net for net, _ in steps], [adam for _, adam in steps]


def polyak(target: Array, online: Array, tau: float) -> Array:
    """Algorithm 1 of arXiv 1812.05905: tau * online + (1 - tau) * target."""
    return np.asarray(tau * online + (1.0 - tau) * target, dtype=np.float64)


def polyak_network(target: Network, online: Network, tau: float) -> Network:
    """Polyak averaging of every array; tau 1 is a hard copy."""
    return {
        key: [polyak(old, new, tau) for old, new in zip(target[key], online[key], strict=True)]
        for key in target
    }


def polyak_networks(
    targets: Sequence[Network], online: Sequence[Network], tau: float
) -> list[Network]:
    """Polyak averaging of an ensemble, member by member."""
    return [polyak_network(old, new, tau) for old, new in zip(targets, online, strict=True)]


def normal_log_density(u: Array, mean: Array, log_std: Array) -> Array:
    """Elementwise log N(u; mean, std) = -((u - mean) / std)^2 / 2 - log std - log(2 pi) / 2."""
    z = (u - mean) * np.exp(-log_std)
    return -0.5 * z * z - log_std - 0.5 * math.log(2.0 * math.pi)


def squared_loss(q: Array, target: Array) -> tuple[float, Array]:
    """sum_i mean_b (Q_i - y)^2 and its gradient 2 (Q_i - y) / B with respect to q [N, B].

    y [B] is constant.
    """
    error = q - target[None, :]
    return float((error * error).mean(axis=1).sum()), 2.0 * error / error.shape[1]


def checked(values: Array, shape: tuple[int, ...], name: str) -> Array:
    """Return float64 ``values``; raise an error for a shape that would broadcast."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {shape}")
    return array


def checked_batch(batch: Batch, observation_size: int, action_size: int) -> Batch:
    """The batch in float64, with the shapes in its docstring."""
    size = len(batch["observation"])
    observation, action = (size, observation_size), (size, action_size)
    return {
        "observation": checked(batch["observation"], observation, "observation"),
        "action": checked(batch["action"], action, "action"),
        "reward": checked(batch["reward"], (size,), "reward"),
        "next_observation": checked(batch["next_observation"], observation, "next_observation"),
        "termination": checked(batch["termination"], (size,), "termination"),
    }


def sizes(net: Network) -> tuple[int, int]:
    """The sizes of a network's input and of its output."""
    return np.shape(net["weights"][0])[0], np.shape(net["weights"][-1])[1]


def run_updates(
    update: Callable[..., tuple[Any, dict[str, float]]],
    state: Any,
    inputs: Iterable[tuple[Any, ...]],
    hyper: Any,
) -> tuple[Any, list[dict[str, float]]]:
    """Complete updates in sequence: each input is a batch, or a batch and its noise."""
    history = []
    for arguments in inputs:
        state, metrics = update(state, *arguments, hyper)
        history.append(metrics)
    return state, history
