"""The trust boundary: every byte that comes from a file, and every file that is written.

- `reading`: regular files only, with a size limit, without following links.
- `writing`: exclusive creation, atomic replacement, durability.
- `json_codec`, `yaml_codec`: plain data and nothing else.
- `arrays`: npy, npz, pt, HDF5 and safetensors, checked against the bytes that are there.
- `minari_format`: Minari datasets, read without Minari's loader.
- `text`: what may reach a terminal.

Other packages never use `open`, `h5py`, `safetensors`, `torch.load` or `yaml` directly; an import
contract (pyproject.toml) and `tests/boundary/test_contract.py` enforce it. See docs/security.md.
"""
