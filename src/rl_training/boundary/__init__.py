"""The trust boundary: every byte that is read from a file, and every file that is written.

- `reading`: regular files only, with a size limit, without following links.
- `writing`: exclusive creation, atomic replacement, durability.
- `json_codec`, `yaml_codec`: plain data and nothing else.
- `npy`, `npz`, `pt`, `hdf5`, `tensors`: arrays, checked against the bytes that are present.
- `minari_format`: Minari datasets, read without Minari's loader.
- `text`, `terminal`: what may reach a terminal.

Other packages never use `open`, `h5py`, `safetensors`, `torch.load` or `yaml` directly; an import
contract (pyproject.toml) and `tests/boundary/test_contract.py` enforce it. See docs/security.md.
"""
