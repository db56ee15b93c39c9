"""HDF5 files: only values that are in the file itself, through filters that HDF5 ships with.

External links, external storage and virtual datasets make the library open other files; unknown
filters make it load a plug-in. All of them are refused before a dataset is opened or read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl_training.boundary.columns import Column, check_expansion, refusing_damage
from rl_training.boundary.reading import open_file
from rl_training.boundary.text import shown
from rl_training.errors import ConfigError

INSTALL = "pip install 'rl-training[offline]'"
HDF5 = "an HDF5 file"
_FILTERS = {1, 2, 3, 4, 5, 6, 32000}
"""Deflate, shuffle, Fletcher32, szip, n-bit, scale-offset; and LZF, which h5py brings."""


@contextmanager
def open_hdf5(path: Path, *, follow_links: bool = True) -> Iterator[Any]:
    """An HDF5 file as h5py opens it; read it with `members` alone."""
    try:
        import h5py
    except ImportError:
        raise ConfigError(f"Reading {path} needs h5py: {INSTALL}") from None
    open_file(path, follow_links=follow_links).close()  # a regular file, or an error
    with refusing_damage(str(path), HDF5):
        file = h5py.File(path, "r")
    with file:
        yield file


@contextmanager
def open_hdf5_columns(path: Path) -> Iterator[dict[str, Column]]:
    """The datasets at the top of a file, D4RL's layout; groups and empty datasets are skipped."""
    with open_hdf5(path) as file:
        import h5py

        with refusing_damage(str(path), HDF5):
            columns = {
                name: Column.of(found, str(path), HDF5)
                for name, found in members(file, str(path))
                if isinstance(found, h5py.Dataset) and found.shape is not None
            }
            check_expansion(path, columns.values())
        yield columns


def members(group: Any, source: str) -> Iterator[tuple[str, Any]]:
    """The datasets and groups inside a group, each refused if it is not wholly in this file."""
    import h5py

    for key in group:
        name = str(key)  # a name that is not UTF-8 comes as bytes
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            raise ConfigError(f"{source}: {shown(name)} is a link, and links are not followed.")
        found = group[key]
        if isinstance(found, h5py.Dataset):
            _check_dataset(found, f"{source}: {shown(name)}")
        yield name, found


def _check_dataset(dataset: Any, place: str) -> None:
    import h5py

    plist = dataset.id.get_create_plist()
    if plist.get_external_count():
        raise ConfigError(f"{place} has its values in another file, which is not opened.")
    if plist.get_layout() == h5py.h5d.VIRTUAL:
        raise ConfigError(f"{place} is a virtual dataset of other files, which are not opened.")
    for index in range(plist.get_nfilters()):
        code = plist.get_filter(index)[0]
        if code not in _FILTERS:
            raise ConfigError(f"{place} uses HDF5 filter {code}: store it with gzip or without.")
