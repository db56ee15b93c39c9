"""SAC on Pendulum with your own training loop, built from the package's parts.

    python examples/sac_pendulum_reference.py --steps 10000

The managed class needs only one line, `SAC("Pendulum-v1").learn(20_000)`. Start from this program
if you want to change the loop itself.
"""

import argparse

import gymnasium as gym
import numpy as np
import torch

from rl_training import ReplayBuffer, SACAlgorithm, SACConfig
from rl_training.algorithms import draw_noise
from rl_training.envs import ActionScaler, read_env_spec


def train(steps: int, seed: int = 0, learning_starts: int = 500) -> list[float]:
    """Train for ``steps`` environment steps and return the episode returns."""
    env = gym.make("Pendulum-v1")
    spec = read_env_spec(env, "Pendulum-v1")
    config = SACConfig(learning_rate=1e-3)
    learner = SACAlgorithm.build(spec, config, seed=seed)
    buffer = ReplayBuffer(steps, spec.obs_dim, spec.action_dim)
    to_env = ActionScaler(spec).to_env
    random = torch.Generator().manual_seed(seed)

    obs, _ = env.reset(seed=seed)
    returns, total, updates = [], 0.0, 0
    for step in range(steps):
        if step < learning_starts:  # explore uniformly before learning
            action = torch.rand(1, spec.action_dim, generator=random) * 2 - 1
        else:
            noise = draw_noise(learner.act_noise(1), random)
            action = learner.act(torch.as_tensor(obs)[None], deterministic=False, noise=noise)
        next_obs, reward, terminated, truncated, _ = env.step(to_env(action.numpy())[0])
        # Terminations and time limits are stored separately: a target bootstraps at a time limit
        # but not at a termination.
        buffer.add(
            obs[None],
            action.numpy(),
            np.array([reward], dtype=np.float32),
            next_obs[None],
            np.array([terminated]),
            np.array([truncated]),
        )
        obs, total = next_obs, total + float(reward)
        if terminated or truncated:  # the episode is over, for either reason
            returns.append(total)
            print(f"step {step + 1:6d}   return {total:8.1f}")
            (obs, _), total = env.reset(), 0.0
        if step >= learning_starts:
            batch = buffer.sample(config.batch_size, random)
            noise = draw_noise(learner.noise(config.batch_size), random)
            # Some learners (TD3, REDQ, DQN) do not run every stage in every update; `due` says
            # which to run now.
            learner.update(batch, noise, learner.due(updates))
            updates += 1
    env.close()
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    train(arguments.steps, arguments.seed)
