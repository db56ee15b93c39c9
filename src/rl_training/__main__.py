"""`python -m rl_training` is the command line."""

import os
import sys


def _leave_out_present_folder() -> None:
    """Import from installed packages alone, as `rl-training` does.

    `python -m` looks into the present folder first, and a folder with somebody's run in it may also
    hold a mujoco.py. `--import` adds the folder again, after the installed packages.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if getattr(sys.flags, "safe_path", False) or not sys.path or sys.path[0] == package:
        return
    try:
        here = os.getcwd()
    except OSError:  # it was removed
        here = ""
    if sys.path[0] in ("", here):
        del sys.path[0]


if __name__ == "__main__":
    _leave_out_present_folder()
    from rl_training.cli import main

    main()
