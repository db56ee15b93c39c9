"""Mutants of recorded data: images, memory maps, listings and advice."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

DATASET = "data/offline_dataset.py"
INSPECTION = "data/inspection.py"
IMAGES = "tests/data/test_image_datasets.py"
MAPPED = "data/mapped_dataset.py"
MAPS = "tests/data/test_mapped_datasets.py"

MUTANTS = [
    Mutant(
        "the next image of a row is its own",
        DATASET,
        "yield rows[:-1], rows[1:]",
        "yield rows[:-1], rows[:-1]",
        IMAGES,
    ),
    Mutant(
        "pixels are not part of the fingerprint",
        DATASET,
        "hashlib.sha256(rows.digest() + pixels.digest())",
        "hashlib.sha256(rows.digest())",
        "tests/api/test_offline_pixels.py -k changed_pixel",
    ),
    Mutant(
        "the numbers of frames are compared with a tolerance",
        INSPECTION,
        "(following[:, size:] != obs[:, size:]).any(axis=1)",
        "(np.abs(following[:, size:] / obs[:, size:].clip(1) - 1) > JUMP).any(axis=1)",
        IMAGES,
    ),
    Mutant(
        "equal images with different numbers are different rows",
        INSPECTION,
        "numbers = first[same].astype(np.float32)",
        "numbers = np.arange(len(same), dtype=np.float32)",
        IMAGES,
    ),
    Mutant(
        "values of images are rounded to bytes",
        "data/observation_columns.py",
        "return _checked_pixels(plain, entries)",
        "return plain",
        IMAGES,
    ),
    Mutant(
        "recorded images are converted to float32",
        "runtime/recording.py",
        'np.dtype(entry.dtype if entry.kind == "image" else np.float32)',
        "np.dtype(np.float32)",
        IMAGES,
    ),
    Mutant(
        "the next observation of a mapped row that terminates is the next episode's",
        MAPPED,
        'places = places + (self.scalars["terminations"][rows] <= 0)',
        "places = places + 1",
        f"{MAPS} -k _are_",
    ),
    Mutant(
        "mapped actions keep the units of the environment",
        MAPPED,
        "map_actions(target, self.spec)",
        "pass",
        f"{MAPS} -k _are_",
    ),
    Mutant(
        "the next observations of mapped rows are not normalized",
        MAPPED,
        "if name in OBSERVATIONS and self.shift is not None",
        'if name == "observations" and self.shift is not None',
        f"{MAPS} -k _are_",
    ),
    Mutant(
        "mapped rows are not checked",
        MAPPED,
        "        if finite:\n            check_finite(values, start, name, source)\n",
        "",
        f"{MAPS} -k _are_",
    ),
    Mutant(
        "the rewards of held-out mapped rows are those of other rows",
        MAPPED,
        "scalars={name: values[chosen] for name, values in self._rows.scalars.items()}",
        "scalars=self._rows.scalars",
        f"{MAPS} -k _are_",
    ),
    Mutant(
        "the last mapped image is that of a row after the file",
        "data/frames.py",
        "np.minimum(row + column, last)",
        "row + column",
        f"{MAPS} -k _are_",
    ),
    Mutant(
        "a mapped archive is not checked against its checksum",
        "boundary/npy.py",
        "return Column(header.shape, header.dtype, read, source, kind, take, on_disk=True)",
        "return Column.of(array, source, kind)",
        f"{MAPS} -k damaged_archive",
    ),
]
