"""Write docs/results.md and its plots from the records: `make results`.

`tests/test_results.py` fails when the page is out of date.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import report_plots
from benchmarks.records import (
    estimate,
    is_recorded,
    load,
    normalized,
    number,
    source,
    spread,
    table,
)

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
IMAGES = ROOT / "docs" / "images"

NAMES = {
    "awac": "AWAC",
    "bc": "BC",
    "cql": "CQL",
    "ddpg": "DDPG",
    "dqn": "DQN",
    "edac": "EDAC",
    "her": "HER",
    "iql": "IQL",
    "rebrac": "ReBRAC",
    "redq": "REDQ",
    "sac": "SAC",
    "td3": "TD3",
    "td3_bc": "TD3+BC",
    "tqc": "TQC",
}
STUDIES = {
    "dqn_cartpole_seeds": "DQN, CartPole-v1",
    "sac_cartpole": "Discrete SAC",
    "offline_cartpole": "Recorded CartPole",
    "minatar": "MinAtar",
    "catch": "DQN, Catch from 84×84 pixels",
    "pixel_pendulum_gpu": "SAC, Pendulum from pixels",
    "dict_pendulum": "SAC, Pendulum from a Dict",
}
"""Records of `benchmarks.evidence`, and what they show."""
RECORD_LEARNERS = {
    "record_learners_pendulum": "Packaged configs",
    "crossq_small": "CrossQ, critics of 2×256, HalfCheetah-v5",
    "simba_small": "SAC with SimBa's networks, HalfCheetah-v5",
}
"""Records of `benchmarks.evidence` for FlashSAC, CrossQ and SAC with SimBa's networks."""
PEERS = {"stable_baselines3": "Stable-Baselines3", "sbx": "SBX", "d3rlpy": "d3rlpy"}
OFFLINE_TASKS = {
    ("halfcheetah", "medium-replay"): "HalfCheetah medium-replay",
    ("halfcheetah", "medium"): "HalfCheetah medium",
    ("hopper", "medium-replay"): "Hopper medium-replay",
    ("hopper", "medium"): "Hopper medium",
}


def main() -> None:
    """Write the page and the plots."""
    IMAGES.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    print(f"Wrote {PAGE.relative_to(ROOT)}")
    for name, draw in report_plots.PLOTS.items():
        draw(IMAGES / name)
        print(f"Wrote {(IMAGES / name).relative_to(ROOT)}")


def page() -> str:
    """Return the text of docs/results.md."""
    return (
        "\n\n".join(
            (
                introduction(),
                *cpu_speed(),
                *gpu_speed(),
                *online_learning(),
                *record_learners(),
                *discrete_and_pixels(),
                *offline_learning(),
                *offline_to_online(),
                *hindsight(),
                *files_and_memory(),
            )
        )
        + "\n"
    )


def introduction() -> str:
    """Return what the page is, and its headlines."""
    peers = {**load("online_cpu")["summary"], **load("dqn_cpu")["summary"]}
    peers |= load("offline_cpu")["summary"]
    sac = load("sac_cpu")["summary"]
    ratios = [entry["over_better_peer"]["compiled"]["median"] for entry in peers.values()]
    ratios.append(sac["sb3"]["ours_ratio"]["median"])
    cheetah = load("sac_halfcheetah_learning")
    ours, theirs = (fmean(run["return_mean"] for run in cheetah[side]) for side in ("ours", "sb3"))
    results = load("rlpd_gpu")["results"]
    rlpd, without = (
        fmean(entry["return"] for key, entry in results.items() if key.startswith(name))
        for name in ("rlpd", "sac")
    )
    saves = load("checkpoint_cost")["saves"]
    rebrac = load("offline_learning_rebrac_after")["rebrac"]["difference"]
    low, high = (number(bound, 1) for bound in rebrac["interval"])
    headlines = {
        "Speed on the CPU": f"{min(ratios):.1f} to {max(ratios):.1f} times as fast as Stable-Baselines3 and d3rlpy, "
        f"{sac['sbx']['ours_ratio']['median']:.1f} times as fast as SBX",
        "Speed on a GPU": "SAC trains at "
        f"{number(load('train_gpu')['steps_per_second']['median'])} steps per second on HalfCheetah-v5 with an H200",
        "Learning online": f"SAC reaches {number(ours)} on HalfCheetah-v5 after 100,000 steps, "
        f"Stable-Baselines3 {number(theirs)} (not a significant difference)",
        "Learning offline": "On par with d3rlpy on Pendulum-v1; ReBRAC differs by "
        f"{number(rebrac['mean'], 1)} [{low}, {high}]",
        "Offline to online": f"RLPD reaches {rlpd / without:.1f} times the return of SAC after 50,000 steps",
        "Files and memory": "Saving a checkpoint takes at most "
        f"{max(save['save_seconds'] for save in saves):.2f} s with up to "
        f"{saves[-1]['transitions']:,} transitions",
    }
    rows = [
        [f"[{name}](#{name.lower().replace(' ', '-')})", text] for name, text in headlines.items()
    ]
    return f"""<!-- Written by `make results` from benchmarks/results/*.json. Do not edit. -->

# Results

How fast rl_training is and how well it learns, compared with Stable-Baselines3, SBX and d3rlpy. Every table is generated
from recorded measurements and shows the command that reproduces it, the commit, the machine and the date.

{table(["section", "headline"], rows)}

Speeds are medians, with the minimum and maximum in parentheses. Returns are means, with a 95% confidence interval in
brackets (Student's t over seeds, unless stated otherwise). Commands run from the root of the repository.
[benchmarks/README.md](../benchmarks/README.md) explains how comparisons are kept fair, and
[benchmarks/notes](../benchmarks/notes/README.md) has details, dead ends and earlier measurements."""


def cpu_speed() -> Iterator[str]:
    """Training speed on the CPU, next to other libraries."""
    yield "## Speed on the CPU"
    yield ("![How many times faster rl_training trains than other libraries](images/speed_cpu.svg)")
    sac = load("sac_cpu")["summary"]
    rows = [
        [words, spread(sac[key]["speed"], 1), ratio(sac[key].get("ours_ratio"))]
        for key, words in {
            "ours": "rl_training, `engine=compiled`",
            "ours_eager": "rl_training, `engine=eager`",
            "sb3": "Stable-Baselines3, default (2 threads)",
            "sb3_1thread": "Stable-Baselines3, 1 thread",
            "sbx": "SBX (JAX)",
            "products": "The matrix products alone, the upper limit",
        }.items()
    ]
    yield (
        "**SAC** on HalfCheetah-v5, batch size 256, two hidden layers of 256, one update per step, with logging and "
        "checkpoints. Environment steps per second in 3 interleaved rounds:"
    )
    yield table(["", "steps/s", "`compiled` relative to it"], rows)
    yield source("sac_cpu")
    online = load("online_cpu")["summary"] | load("dqn_cpu")["summary"]
    yield (
        "**Other online algorithms**: full training runs with the packaged settings on HalfCheetah-v5 (DQN on "
        "CartPole-v1), compared with Stable-Baselines3 (TQC: sb3-contrib) at its faster thread count, in steps per "
        "second:"
    )
    yield peer_table(online, ("td3", "ddpg", "tqc", "dqn"), "Stable-Baselines3")
    yield source({"online_cpu": "record", "dqn_cpu": "record of DQN"})
    yield (
        "**Offline algorithms** compared with d3rlpy at its faster thread count, in updates per second on 100,000 "
        "rows with the sizes of HalfCheetah and the same settings on both sides:"
    )
    offline = load("offline_cpu")["summary"]
    yield peer_table(offline, ("bc", "iql", "td3_bc", "awac", "cql"), "d3rlpy")
    yield source("offline_cpu")
    replay = load("replay_cpu")
    speeds = replay["steps_per_second"]
    yield (
        f"**Prioritized replay** with a million rows: {spread(speeds['prioritized'])} steps per second, "
        f"{spread(speeds['uniform'])} without priorities. The ratio is {spread(replay['ratio'], 2)}."
    )
    yield source("replay_cpu")
    captured = load("replay_gpu")
    yield (
        f"On an H200 with CUDA graphs, it is {spread(captured['ratio'], 2)}, with "
        f"{spread(captured['steps_per_second']['prioritized'])} steps per second."
    )
    yield source("replay_gpu")
    actions = load("inference_cpu")["microseconds"]
    yield (
        "**One action for one observation** takes "
        f"{spread(actions['sac, policy'], 1)} µs with SAC, {spread(actions['td3, policy'], 1)} µs with TD3 and "
        f"{spread(actions['iql, policy'], 1)} µs with IQL (two hidden layers of 256, one thread)."
    )
    yield source("inference_cpu")
    exported = load("exported_cpu")["microseconds"]
    yield "**One action of an exported policy** compared with `predict`, in microseconds with one thread:"
    yield table(
        ["policy", "`predict`", "`policy.py`", "onnxruntime alone", "`policy.py` / `predict`"],
        [
            [
                name,
                *(spread(found[way], 1) for way in ("predict", "policy.py", "onnxruntime")),
                spread(found["policy.py / predict"], 2),
            ]
            for name, found in exported.items()
        ],
    )
    yield source("exported_cpu")


def ratio(summary: dict[str, float] | None) -> str:
    """A ratio with its range, or a dash."""
    return spread(summary, 2, "×") if summary else "–"


def peer_table(summary: dict[str, Any], names: tuple[str, ...], peer: str) -> str:
    """Speeds of algorithms next to the peer's faster thread count."""
    rows = []
    for name in names:
        speed = summary[name]["speed"]
        better = max((speed["peer"], speed["peer, 1 thread"]), key=lambda entry: entry["median"])
        digits = 1 if speed["compiled"]["median"] < 100 else 0
        rows.append(
            [
                NAMES[name],
                *(spread(entry, digits) for entry in (speed["compiled"], speed["eager"], better)),
                ratio(summary[name]["over_better_peer"]["compiled"]),
            ]
        )
    return table(["", "compiled", "eager", peer, "compiled relative to it"], rows)


def gpu_speed() -> Iterator[str]:
    """Training and update speed on one H200."""
    yield "## Speed on a GPU"
    engine, train = load("engine_gpu")["summary"], load("train_gpu")
    yield (
        "**Full training** of SAC on HalfCheetah-v5 with one environment and one update per step: "
        f"{spread(train['steps_per_second'])} steps per second."
    )
    yield source("train_gpu")
    words = {
        "eager": "`engine=eager`",
        "compiled": "`engine=compiled`",
        "cuda_graph": "`engine=cuda_graph`, which `auto` chooses for long runs",
        "jax": "JAX, the same update in `lax.scan`",
    }
    yield "**Updates only**, without an environment: SAC with batch size 256. JAX is faster here:"
    yield table(["", "updates/s"], [[words[key], spread(engine[key])] for key in words])
    yield source("engine_gpu")
    family = load("family_gpu")["results"] | load("family_offline_gpu")["results"]
    rows = []
    for name, entry in family.items():
        if entry["mode"] == "cuda_graph":
            low, median, high = sorted(entry["speeds"])
            algo, _, rest = name.partition(",")
            label = NAMES[algo] + (f",{rest}" if rest else "")
            label = label.replace(", over sac", " with SAC").replace("batch 1024", "batch 1,024")
            rows.append([label, spread({"median": median, "min": low, "max": high})])
    yield "**Every algorithm** with CUDA graphs, batch size 256 and 2×256 networks unless stated otherwise:"
    yield table(["", "updates/s"], rows)
    yield source({"family_gpu": "record, online", "family_offline_gpu": "record, offline and HER"})


def online_learning() -> Iterator[str]:
    """Returns of online learners."""
    yield "## Learning online"
    yield "![Learning curves on HalfCheetah-v5 and Pendulum-v1](images/learning_online.svg)"
    yield (
        "Packaged configs without changes, last checkpoint, 10 evaluation episodes per seed from the same "
        "initial states. "
        "The last seed of each row was drawn at random when the benchmark started."
    )
    cheetah = load("sac_halfcheetah_learning")
    returns = [run["return_mean"] for run in cheetah["ours"]]
    peers = [run["return_mean"] for run in cheetah["sb3"]]
    rows = [
        ["SAC", "HalfCheetah-v5", "100,000", estimate(returns), estimate(peers)],
        *gpu_row("TD3", "td3_halfcheetah_gpu"),
        *gpu_row("TQC", "tqc_halfcheetah_gpu"),
    ]
    for name in ("sac", "td3", "ddpg", "tqc", "redq"):
        record = load(f"{name}_pendulum_learning")
        scores = [run["return_mean"] for run in record["ours"]]
        rows.append([NAMES[name], "Pendulum-v1", f"{record['steps']:,}", estimate(scores, 1), "–"])
    yield table(["", "task", "steps", "return (4 seeds)", "Stable-Baselines3, same settings"], rows)
    yield (
        "With four seeds each, the difference from Stable-Baselines3 on HalfCheetah-v5 is not significant "
        "(Welch's t = 1.6)."
    )
    yield "SAC on HalfCheetah-v5:"
    yield source("sac_halfcheetah_learning", cheetah["command"])
    yield "TD3 and TQC on HalfCheetah-v5:"
    yield source({"td3_halfcheetah_gpu": "TD3", "tqc_halfcheetah_gpu": "TQC"})
    yield "Pendulum-v1:"
    yield source(
        {f"{name}_pendulum_learning": NAMES[name] for name in ("sac", "td3", "ddpg", "tqc", "redq")}
    )


def discrete_and_pixels() -> Iterator[str]:
    """Returns of studies with discrete actions, pixels and Dicts."""
    yield from study_results(
        "Discrete actions, pixels and Dicts",
        STUDIES,
        "Returns of last checkpoints over 20 episodes from the same initial states on both sides. No seed "
        "was used to choose the settings of its row. Stable-Baselines3's DQN on CartPole has the settings of its zoo; "
        "otherwise both sides have the same settings and network sizes. d3rlpy has no IQL for discrete actions. "
        "Rows with fewer than five seeds are incomplete, and say little.",
    )


def record_learners() -> Iterator[str]:
    """Returns of learners that need few environment steps."""
    yield from study_results(
        "Record learners on a CPU",
        RECORD_LEARNERS,
        "FlashSAC, CrossQ and SAC with SimBa's networks, with one thread, on seeds that were not used to choose "
        "settings; last checkpoints over 20 episodes. Pendulum-v1 has the packaged configs, and no run took longer "
        f"than {number(longest_run('record_learners_pendulum'))} s on a machine that it shared with others. On "
        "HalfCheetah-v5, both sides have the same widths and, for CrossQ, the same warm-up of the renormalization.",
    )
    cost = load("flash_cpu")["summary"]["flash_sac 2, compiled"]
    yield (
        f"With the networks of the paper, an update of FlashSAC needs {number(cost['flop_ratio'] / 2)} times the "
        f"arithmetic of SAC's, and takes {spread(cost['cost_over_arithmetic'], 2)} times as long as that ratio "
        "predicts, on one thread of a CPU:"
    )
    yield source("flash_cpu")


def longest_run(name: str) -> float:
    """Return the seconds of the longest run of a record."""
    groups = load(name)["groups"]
    return max(float(run["seconds"]) for group in groups for run in group["ours"]["runs"])


def study_results(title: str, studies: Mapping[str, str], text: str) -> Iterator[str]:
    """Returns of the studies in benchmarks/studies, next to a peer where there is one."""
    recorded = {name: words for name, words in studies.items() if is_recorded(name)}
    rows = []
    for words, record in {words: load(name) for name, words in recorded.items()}.items():
        for group in record["groups"]:
            ours = [run["return_mean"] for run in group["ours"]["runs"]]
            peer = group.get("peer")
            theirs = [run["return_mean"] for run in peer["runs"]] if peer else []
            library = PEERS.get(group.get("peer_library", ""), "")
            several = len(record["groups"]) > 1
            name = f"{words}: {group['label']}, {group['task']}" if several else words
            cells = [name, f"{group['config']['total_timesteps']:,}", seeds_text(ours)]
            cells.append(f"{library}: {seeds_text(theirs)}" if theirs else "–")
            rows.append([*cells, number(group["random"]["return_mean"], 1)])
    if not rows:
        return
    yield f"## {title}"
    yield text
    yield table(["", "steps or updates", "return", "peer", "random play"], rows)
    yield source(recorded)


def seeds_text(returns: list[float]) -> str:
    """Format the mean of several seeds, the lowest and their number."""
    if len(returns) == 1:
        return estimate(returns, 1)
    return f"{estimate(returns, 1)}, lowest of {len(returns)} seeds {number(min(returns), 1)}"


def gpu_row(label: str, name: str) -> list[list[str]]:
    """A row of a record made by train_gpu.py."""
    returns = [run["last"] for run in load(name)["seeds"].values()]
    return [[label, "HalfCheetah-v5", "100,000", estimate(returns), "–"]]


def offline_returns(algo: str, task: str, kind: str) -> list[float]:
    """Returns of the seeds that the table of offline results shows."""
    record = "offline_gpu"
    if (algo, task) == ("edac", "halfcheetah"):
        record = "offline_edac_gpu"
    elif (algo, task, kind) == ("td3_bc", "hopper", "medium-replay"):
        record = "offline_longer_gpu"
    return [run["return"] for run in load(record)["runs"][f"{algo} {task} {kind}"]]


def offline_learning() -> Iterator[str]:
    """Returns of offline learners."""
    yield "## Learning offline"
    yield "![Normalized scores of offline algorithms](images/learning_offline.svg)"
    yield (
        "Normalized scores (0 is random play, 100 is D4RL's expert) on datasets recorded with "
        "`python -m benchmarks.collect_medium`, which are not those of D4RL: 100,000 rows from a medium policy "
        "(medium), and all transitions collected in training up to that point (medium-replay). Packaged configs, "
        "100,000 updates, last checkpoint, 10 episodes. The intervals are wide because there are only three seeds."
    )
    rows = []
    for algo in ("edac", "cql", "td3_bc", "awac", "iql", "bc"):
        cells = []
        for task, kind in OFFLINE_TASKS:
            scores = [normalized(value, task) for value in offline_returns(algo, task, kind)]
            cells.append(estimate(scores, 1))
        rows.append([NAMES[algo], *cells])
    yield table(["", *OFFLINE_TASKS.values()], rows)
    yield (
        "Two settings differ ([why](../benchmarks/notes/offline.md)): EDAC on HalfCheetah uses η 5 and 200,000 "
        "updates, and TD3+BC on Hopper medium-replay uses 300,000 updates."
    )
    yield source(
        {
            "offline_gpu": "record",
            "offline_edac_gpu": "EDAC on HalfCheetah",
            "offline_longer_gpu": "TD3+BC with 300,000 updates",
        },
        "python -m benchmarks.offline_gpu --data data\n"
        "python -m benchmarks.offline_gpu --data data --algos edac --tasks halfcheetah "
        "--updates 200000 --set eta=5\n"
        "python -m benchmarks.offline_gpu --data data --algos td3_bc --tasks hopper "
        "--kinds medium-replay --updates 300000",
    )
    full = load("hopper_full_length_gpu")
    yield (
        "**With data from a solved task.** The replay buffer of SAC after 500,000 steps on Hopper-v5 has "
        "episodes that reach the time limit. On it, four algorithms reach the return of SAC's final policy "
        f"({number(full['sac']['1'][-1][1])}). Return after 300,000 updates, seeds 0 and 1, 20 episodes:"
    )
    order = sorted(
        full["curves"],
        key=lambda name: -sum(curve[-1][1] for curve in full["curves"][name].values()),
    )
    finals = {name: [curve[-1][1] for curve in full["curves"][name].values()] for name in order}
    yield table(
        ["", "seed 0", "seed 1"], [[NAMES[name], *map(number, finals[name])] for name in order]
    )
    yield source("hopper_full_length_gpu", "\n".join(full["commands"]))
    yield from against_d3rlpy()


def against_d3rlpy() -> Iterator[str]:
    """Returns next to d3rlpy's."""
    records = load("offline_learning") | load("offline_learning_rebrac_after")
    rows = []
    for name in ("rebrac", "awac", "iql", "td3_bc", "cql", "bc"):
        record = records[name]
        sides = [record[side] for side in ("ours", "peer")]
        cells = [
            f"{number(side['mean'])} [{', '.join(map(number, side['interval']))}], "
            f"{len(side['seed_means'])} seeds"
            for side in sides
        ]
        rows.append([NAMES[name], f"{record['updates']:,}", *cells])
    yield (
        "**Compared with d3rlpy 2.8.1** on Pendulum-v1, with 10,000 transitions from RLlib's tests and the same "
        "settings on both sides: last checkpoint, 20 episodes from the same initial states. Intervals are from a "
        "bootstrap over seeds and episodes:"
    )
    yield table(["", "updates", "rl_training", "d3rlpy"], rows)
    gpu = load("offline_learning_cql_gpu")["cql"]
    ours, peer = gpu["ours"], gpu["peer"]
    first = records["cql"]
    yield (
        f"On these {len(first['ours']['seed_means'])} seeds, CQL is "
        f"{number(first['peer']['mean'] - first['ours']['mean'])} behind d3rlpy. On "
        f"{len(ours['seed_means'])} and {len(peer['seed_means'])} other seeds, run later on a GPU, it is "
        f"{number(ours['mean'] - peer['mean'])} ahead ({number(ours['mean'])} and {number(peer['mean'])}). "
        "All seeds together show no significant difference "
        "([details](../benchmarks/notes/offline.md#comparison-with-d3rlpy))."
    )
    yield source(
        {
            "offline_learning": "record",
            "offline_learning_rebrac_after": "ReBRAC",
            "offline_learning_cql_gpu": "CQL on a GPU",
        },
        "python -m benchmarks.offline_learning --dataset pendulum-medium-sac-rllib.npz "
        "--seeds 0 1 2 3 4",
    )


def offline_to_online() -> Iterator[str]:
    """RLPD and fine-tuning."""
    yield "## Offline to online"
    yield "![RLPD compared with SAC, and fine-tuning of IQL, on HalfCheetah-v5](images/offline_to_online.svg)"
    results = load("rlpd_gpu")["results"]
    returns = {
        name: [entry["return"] for key, entry in results.items() if key.split()[0] == name]
        for name in ("rlpd", "sac")
    }
    means = {name: sum(values) / len(values) for name, values in returns.items()}
    yield (
        "**RLPD** on HalfCheetah-v5 with 100,000 recorded rows of a medium policy (mean return "
        f"{number(load('halfcheetah_medium_data')['medium']['return_mean'])}), return after 50,000 steps, 4 seeds:"
    )
    yield table(
        ["", "return", "relative to SAC"],
        [
            [
                "RLPD with the data",
                estimate(returns["rlpd"]),
                f"{means['rlpd'] / means['sac']:.2f}×",
            ],
            ["SAC without the data", estimate(returns["sac"]), "1×"],
        ],
    )
    yield (
        "RLPD makes 20 updates per step with 10 critics and trains at "
        f"{spread(results['speed']['steps_per_second'])} steps per second."
    )
    yield source("rlpd_gpu")
    prior = load("rlpd_pendulum_prior_data")["runs"]
    labels = {
        "rlpd": "RLPD with the data",
        "sac, same settings": "SAC without the data, same settings",
    }
    rows = [
        [
            labels[name],
            *(each_seed([run[key] for run in prior[name]]) for key in ("reached", "stays")),
        ]
        for name in labels
    ]
    yield (
        "**Prior data on Pendulum-v1.** Environment steps until the policy reaches a return of −200, with 10,000 "
        "recorded transitions and without them, evaluated every 100 steps over 20 episodes. Mean (each seed):"
    )
    yield table(["", "first reaches −200", "stays at or above −200 from"], rows)
    yield source("rlpd_pendulum_prior_data")
    yield (
        "**Fine-tuning** IQL on HalfCheetah-v5: 100,000 updates on the dataset, then `finetune` for 25,000 steps "
        "with the packaged config, evaluated every 2,500 steps. “Lowest” is the lowest return during fine-tuning:"
    )
    rows = []
    for name, words in {
        "finetune_medium_replay_cpu": "medium-replay, 50 episodes, CPU",
        "finetune_medium_replay_gpu": "medium-replay, 10 episodes, H200",
        "finetune_medium_gpu": "medium, 10 episodes, H200",
    }.items():
        entries = list(load(name)["results"].values())
        cells = [
            estimate([entry[key] for entry in entries]) for key in ("before", "lowest", "after")
        ]
        rows.append([words, str(len(entries)), *cells])
    yield table(["dataset", "seeds", "before", "lowest", "after"], rows)
    yield (
        "All ten runs on medium-replay end above their offline return. One of them dropped to 78% of it along the way "
        "([details](../benchmarks/notes/offline_to_online.md))."
    )
    yield source(
        {
            "finetune_medium_replay_cpu": "record, CPU",
            "finetune_medium_replay_gpu": "record, H200",
            "finetune_medium_gpu": "record, medium",
        },
        "python -m benchmarks.rlpd_gpu --dataset data/halfcheetah-medium-replay.npz --pieces finetune",
    )


def each_seed(values: list[float]) -> str:
    """A mean, and the value of each seed."""
    return f"{number(fmean(values))} ({', '.join(map(number, values))})"


def hindsight() -> Iterator[str]:
    """Goal-conditioned tasks."""
    yield "## Goal-conditioned tasks"
    rows = []
    for words, name in {
        "PointGoal-v0, with hindsight": "her_point_goal_learning",
        "PointGoal-v0, `her_ratio=0`": "her_point_goal_control",
        "PointMaze_UMaze-v3, with hindsight": "her_pointmaze_learning",
    }.items():
        record = load(name)
        success = [f"{100 * run['success_rate']:.0f}%" for run in record["ours"]]
        scores = [run["return_mean"] for run in record["ours"]]
        rows.append([words, f"{record['steps']:,}", ", ".join(success), estimate(scores, 1)])
    yield (
        "HER with SAC as the base algorithm: packaged configs, last checkpoint, 100 evaluation episodes per seed. "
        "An episode counts as a success if the environment reports success at its last step."
    )
    yield table(["", "steps", "success, each seed", "return"], rows)
    yield source(
        {
            "her_point_goal_learning": "with hindsight",
            "her_point_goal_control": "without",
            "her_pointmaze_learning": "PointMaze",
        }
    )


def files_and_memory() -> Iterator[str]:
    """Checkpoints, loading and memory."""
    yield "## Files and memory"
    cost = load("checkpoint_cost")
    rows = [
        [
            f"{save['transitions']:,}",
            f"{save['megabytes_written']:.1f} MB",
            f"{save['save_seconds']:.2f} s",
            f"{save['megabytes_of_the_whole_replay']:.1f} MB",
        ]
        for save in cost["saves"]
    ]
    yield (
        "**Checkpoints** write only what has changed since the previous one. Successive checkpoints of one run with "
        "the sizes of HalfCheetah:"
    )
    yield table(["transitions", "written", "time", "whole replay buffer"], rows)
    loading = cost["saves"][-1]["verify_and_load_seconds"]
    yield (
        f"Verifying and loading the last one takes {loading:.2f} s. A replay buffer of a million transitions takes "
        f"{cost['replay_memory_ratio']:.2f} times the bytes of its float32 contents in memory."
    )
    yield source("checkpoint_cost")
    loads = load("dataset_loading")["loads"]
    yield (
        "**Loading** two million HalfCheetah transitions, 336 MB of float32 values. Peak memory is relative to "
        "those bytes:"
    )
    yield table(
        ["file", "seconds", "peak memory"],
        [[name, f"{x['seconds']:.2f}", f"{x['peak_ratio']:.2f}×"] for name, x in loads.items()],
    )
    yield source("dataset_loading")
    memory = load("offline_memory")["ratios"]
    yield (
        "**Offline training** on a million transitions, 168 MB of float32 values, with small networks. Resident "
        "memory relative to those bytes:"
    )
    yield table(
        ["", "after loading", "peak while loading", "after 500 updates", "after 5,000"],
        [
            [
                name.replace(" %", "%"),
                *(
                    f"{x[key]:.2f}×"
                    for key in ("loaded", "peak_until_loaded", "after_500", "after_5000")
                ),
            ]
            for name, x in memory.items()
        ],
    )
    yield source("offline_memory")


if __name__ == "__main__":
    main()
