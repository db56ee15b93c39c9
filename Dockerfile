# Runs the quick start by default:
#   docker build -t rl-training .
#   docker run --rm -v "$PWD/runs:/data/runs" rl-training
# Any other command line works too:
#   docker run --rm -v "$PWD/runs:/data/runs" rl-training train --config dqn/cartpole
FROM python:3.12-slim

WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
RUN python -m pip install --no-cache-dir -c constraints.txt '.[mujoco,plot]'

WORKDIR /data
ENTRYPOINT ["rl-training"]
CMD ["train", "--config", "sac/pendulum"]
