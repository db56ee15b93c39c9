"""Environment variables, and modules in the current folder."""

from __future__ import annotations

from collections.abc import Iterator

from tests.hostile.bases import MINARI_ID, Bases
from tests.hostile.case import Case, Write
from tests.hostile.forging import Change, change_config, put
from tests.hostile.sandbox import Workspace

TRAIN = (
    "train",
    "-c",
    "{bases}/sac.yaml",
    "output_dir={given}/new",
    "total_timesteps=4",
    "num_threads=null",
    "eval_episodes=0",
)
THREADS = {
    **{"empty": "", "zero": "0", "negative": "-1", "word": "x", "float": "1e3", "list": "2,1"},
    **{"spaces": " 2 ", "superscript": "²", "arabic": "\u0661", "huge": "9" * 30},
    **{"comma": ",", "null-ish": "\\0", "hexadecimal": "0x2", "plus": "+1", "underscore": "1_0"},
}
COLUMNS = {"zero": "0", "negative": "-5", "word": "x", "one": "1", "huge": "10000", "empty": ""}
TERMS = {
    "empty": "",
    "dumb": "dumb",
    "evil": "../../evil",
    "color": "xterm-256color",
    "escape": "\x1b[31m",
}
ENCODINGS = {
    "ascii": "ascii",
    "ascii-strict": "ascii:strict",
    "latin": "latin-1",
    "cp437": "cp437",
    "utf-8": "utf-8:strict",
}
FOLDERS = {
    "missing": "{given}/nowhere",
    "a-file": "{obs}",
    "empty": "",
    "relative": "minari",
    "path-traversal": "../../..",
    "a-device": "/dev/zero",
    "very-long": "x" * 5000,
    "a-loop": "{given}/loop",
    "home": "~",
    "variable": "$HOME",
    "address": "https://127.0.0.1/",
}
QUICK = ("ascii", "zero", "word", "huge", "evil", "escape")
"""Values that `make test` tries with every command."""
OTHERS = {
    "HOME": ("", "/nowhere"),
    "TMPDIR": ("", "/nowhere"),
    "XDG_CACHE_HOME": ("", "/nowhere"),
    "MPLBACKEND": ("module://evil", "evil", "tkagg"),
    "MPLCONFIGDIR": ("/nowhere",),
    "MUJOCO_GL": ("evil",),
    "PYTHONPATH": ("/nowhere",),
    "NO_COLOR": ("1",),
    "LINES": ("x", "0"),
    "CUDA_VISIBLE_DEVICES": ("x", "-1"),
    "TORCH_LOGS": ("",),
    "MINARI_REMOTE": ("hf://evil/evil", "evil", "gs://evil"),
    "HF_TOKEN": ("x",),
    "SOURCE_DATE_EPOCH": ("x",),
    "TZ": ("Nowhere/Nowhere",),
    "LC_ALL": ("C", "xx_XX.UTF-8"),
    "LANG": ("C", ""),
}


def _threads() -> Iterator[Case]:
    for name, value in THREADS.items():
        yield Case(
            f"variable/OMP_NUM_THREADS-{name}",
            TRAIN,
            codes=(0, 2),
            env={"OMP_NUM_THREADS": value},
            slow=name not in ("negative", "word", "superscript", "huge"),
        )


def _terminals() -> Iterator[Case]:
    commands = {
        "runs": ("runs", "{bases}/runs"),
        "algorithms": ("algorithms",),
        "inspect": ("data", "inspect", "{data}"),
        "help": ("train", "--help"),
        "error": ("train", "-c", "läufe-→.yaml"),
        "usage": ("train", "--nonsense"),
    }
    for command, words in commands.items():
        codes = (2,) if command in ("error", "usage") else (0,)
        usage = command == "usage"
        for variable, values in (
            ("COLUMNS", COLUMNS),
            ("TERM", TERMS),
            ("PYTHONIOENCODING", ENCODINGS),
        ):
            if variable != "PYTHONIOENCODING" and command not in ("runs", "help", "error"):
                continue
            for name, value in values.items():
                yield Case(
                    f"variable/{variable}-{name}-{command}",
                    words,
                    codes=codes,
                    usage=usage,
                    env={variable: value},
                    slow=name not in QUICK,
                )
    for name, value in ENCODINGS.items():
        yield Case(
            f"variable/PYTHONIOENCODING-{name}-train",
            TRAIN,
            codes=(0,),
            env={"PYTHONIOENCODING": value},
            slow=name not in QUICK,
        )
        yield Case(
            f"variable/PYTHONIOENCODING-{name}-evaluate",
            ("evaluate", "{bases}/runs/sac", "--episodes", "1"),
            codes=(0,),
            env={"PYTHONIOENCODING": value},
            slow=name not in QUICK,
        )


def _minari() -> Iterator[Case]:
    def loop(workspace: Workspace, bases: Bases) -> None:
        (workspace.given / "loop").symlink_to("loop")

    for name, value in FOLDERS.items():
        env = {"MINARI_DATASETS_PATH": value}
        yield Case(
            f"variable/MINARI_DATASETS_PATH-{name}", ("data", "inspect", MINARI_ID), loop, env=env
        )
        yield Case(
            f"variable/MINARI_DATASETS_PATH-{name}-validate",
            ("data", "validate", MINARI_ID),
            loop,
            env=env,
            slow=True,
        )
    yield Case(
        "variable/MINARI_DATASETS_PATH-ordinary",
        ("data", "inspect", MINARI_ID),
        codes=(0,),
        env={"MINARI_DATASETS_PATH": "{bases}/minari"},
    )


def _others() -> Iterator[Case]:
    for variable, values in OTHERS.items():
        for number, value in enumerate(values):
            for command, words in (
                ("predict", ("predict", "{bases}/runs/sac", "--obs", "{obs}")),
                ("plot", ("plot", "{bases}/runs/sac", "--out", "{given}/p.png")),
            ):
                yield Case(
                    f"variable/{variable}-{number}-{command}",
                    words,
                    codes=(0,),
                    env={variable: value},
                    slow=(command == "plot") != variable.startswith("MPL"),
                )


# --- Modules in the current folder ----------------------------------------------------


def _config(change: Change) -> Write:
    return lambda workspace, bases: change_config(workspace.run, change)


def _modules() -> Iterator[Case]:
    """Yield cases with planted modules, which `python -m rl_training` must not import."""
    train = ("train", "-c", "{bases}/sac.yaml", "output_dir={given}/new", "total_timesteps=4")
    yield Case("modules/train-next-to-evil-robotics", train, codes=(0,))
    yield Case(
        "modules/resume-next-to-evil-robotics",
        ("resume", "{run}", "total_timesteps=26"),
        codes=(0,),
        base="sac",
    )
    for env_id in ("FetchReach-v4", "AdroitHandDoor-v1", "AntMaze_UMaze-v5"):
        change = put("env_id", value=env_id)
        for command, words in {
            "evaluate": ("evaluate", "{run}", "--episodes", "1"),
            "predict": ("predict", "{run}", "--obs", "{obs}"),
            "collect": ("data", "collect", "{run}", "--steps", "3", "--out", "{given}/c.npz"),
            "validate": ("data", "validate", "{run}"),
            "resume": ("resume", "{run}", "total_timesteps=26"),
        }.items():
            codes = (0, 1, 2) if command in ("predict",) else (1, 2)
            yield Case(f"modules/{command}-{env_id}", words, _config(change), codes, base="sac")


def cases() -> Iterator[Case]:
    yield from _threads()
    yield from _terminals()
    yield from _minari()
    yield from _others()
    yield from _modules()
