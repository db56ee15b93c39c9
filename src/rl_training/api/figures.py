"""The common style of all plots, and functions to write them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.boundary.writing import write_output
from rl_training.errors import ConfigError
from rl_training.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".png", ".pdf", ".svg", ".jpg")
"""Allowed file name suffixes of plots."""

DPI = 220
"""Pixels per inch of PNG and JPEG files."""

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The Okabe–Ito colors, which color-blind readers can distinguish, without the pale yellow."""

GRAY = "#595959"
"""Color of notes and axes."""

STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GRAY,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "xtick.color": GRAY,
    "ytick.color": GRAY,
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "lines.linewidth": 1.7,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "pdf.fonttype": 42,  # text in a PDF can be selected and edited
    "svg.hashsalt": "rl-training",  # equal plots are equal files
}


@contextmanager
def plot_style() -> Iterator[None]:
    """Use the common style for figures that are created and written in the block.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise ConfigError(
            "Plots require matplotlib. Install it with: pip install 'rl-training[plot]'"
        ) from None
    with matplotlib.rc_context(STYLE):
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; sizes are in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def write_figure(figure: Figure, file: Path) -> None:
    """Write a figure in the format given by the file's suffix."""
    write_output(file, figure_bytes(figure, file.suffix))


def figure_bytes(figure: Figure, suffix: str) -> bytes:
    """Return a figure as an image in the format of a suffix, such as ``.png``."""
    data = io.BytesIO()
    ending = suffix[1:].lower()
    # A creation date would make equal plots differ.
    date = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(ending, {})
    figure.savefig(data, dpi=DPI, format=ending, metadata=date)
    return data.getvalue()


def literal(text: str) -> str:
    """Escape text so that matplotlib draws it unchanged: a dollar sign would start a formula."""
    return printable(text, keep="").replace("$", r"\$")


def format_counts(axis: Any) -> None:
    """Label counts on an axis as 20k or 1M instead of 20000 or 1000000."""
    from matplotlib.ticker import EngFormatter

    axis.set_major_formatter(EngFormatter(sep=""))


def format_values(axes: Axes) -> None:
    """Use commas as thousands separators on the vertical axis."""
    from matplotlib.ticker import ScalarFormatter, StrMethodFormatter

    low, high = axes.get_ylim()
    if high - low >= 100 and 1_000 <= max(-low, high) < 1e7:
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    elif isinstance(formatter := axes.yaxis.get_major_formatter(), ScalarFormatter):
        formatter.set_useOffset(False)
