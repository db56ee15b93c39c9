"""Populations of a study: runs whose updates are computed together, as one program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rl_training.boundary import json_codec
from rl_training.study.index import StudyRun
from rl_training.study.jobs import Job
from rl_training.study.resources import Resources


@dataclass(frozen=True)
class Population:
    """The work of one worker: the rows of a program, and which of them are trained.

    The other rows belong to runs that have ended. They keep the number of rows, since another
    number may round differently.
    """

    rows: tuple[Job, ...]
    active: tuple[str, ...]
    """Keys of the runs to train."""

    @property
    def jobs(self) -> list[Job]:
        """The jobs of the runs to train."""
        return [job for job in self.rows if job.key in self.active]

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Population:
        """Read the contents of the line that `to_json` returned."""
        return cls(tuple(map(Job.from_dict, data["rows"])), tuple(data["active"]))


def population_kind(config: Mapping[str, Any]) -> str:
    """Return a key that is equal for configs whose runs can be trained as one program.

    They may differ in the seed and in the numbers that are not whole, such as learning rates.
    """
    kwargs = {
        key: "a number" if type(value) is float else value
        for key, value in config["algo_kwargs"].items()
    }
    same = {key: value for key, value in config.items() if key != "seed"}
    return json_codec.dumps(same | {"algo_kwargs": kwargs}).decode()


def populations_of(runs: Iterable[StudyRun], size: int | None = None) -> Iterator[list[StudyRun]]:
    """Yield the runs of each population, in the order given, at most ``size`` at a time.

    They do not depend on which runs have ended, so that a study that continues has the same ones.
    """
    kinds: dict[str, list[StudyRun]] = {}
    for run in runs:
        kinds.setdefault(population_kind(run.config), []).append(run)
    for same in kinds.values():
        count = size or len(same)
        for start in range(0, len(same), count):
            yield same[start : start + count]


def population_resources(runs: Sequence[StudyRun], cores: float) -> Resources:
    """Return what a population needs: what its runs need together, at most a whole GPU."""
    needs = [Resources.from_record(run.group.resources) for run in runs]
    return Resources(
        cpus=min(cores, sum(need.cpus for need in needs)),
        gpus=min(1.0, sum(need.gpus for need in needs)),
        memory=sum(need.memory for need in needs),
    )
