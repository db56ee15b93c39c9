"""The trust boundary: all code that reads bytes from files or writes files.

- `reading`: regular files only, with a size limit, without following links.
- `writing`: exclusive creation, atomic replacement, durability.
- `json_codec`, `yaml_codec`: plain data only.
- `npy`, `pt`, `hdf5`, `tensors`: arrays, checked against the number of bytes present.
- `minari_format`: Minari datasets, read without Minari's loader.
- `terminal`: printable text for standard output and standard error.

Other packages never use `open`, `h5py`, `safetensors`, `torch.load` or `yaml` directly; an import
contract (pyproject.toml) and `tests/boundary/test_contract.py` enforce it. See docs/security.md.
"""
