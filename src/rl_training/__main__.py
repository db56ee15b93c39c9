"""Entry point for `python -m rl_training`."""

import os
import sys


def _remove_current_folder() -> None:
    """Import only from installed packages, like the `rl-training` command.

    `python -m` searches the current folder first, and a folder with a downloaded run may also
    contain a file such as mujoco.py. `--import` adds the folder again, after installed packages.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if getattr(sys.flags, "safe_path", False) or not sys.path or sys.path[0] == package:
        return
    try:
        here = os.getcwd()
    except OSError:  # the folder was removed
        here = ""
    if sys.path[0] in ("", here):
        del sys.path[0]


if __name__ == "__main__":
    _remove_current_folder()
    from rl_training.cli import main

    main()
