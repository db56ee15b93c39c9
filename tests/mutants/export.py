"""Mutants of exported policies."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

GRAPH = "runtime/policy_graph.py"
PARITY = "api/parity.py"
PROGRAM = "boundary/exported_policy.py"
EXPORT = "tests/api/test_export.py"
STANDALONE = "tests/boundary/test_exported_policy.py"

MUTANTS = [
    Mutant(
        "a wrong exported action is accepted",
        PARITY,
        "        if len(wrong):\n",
        "        if len(wrong) == len(rows) + 1:\n",
        f"{EXPORT} -k wrong_export",
    ),
    Mutant(
        "any difference counts as rounding",
        PARITY,
        "RELATIVE_CHANGE = 2.0**-20",
        "RELATIVE_CHANGE = 0.5",
        f"{EXPORT} -k ties",
    ),
    Mutant(
        "the check leaves changed weights behind",
        PARITY,
        "            tensor.copy_(before)\n",
        "            pass\n",
        f"{EXPORT} -k ties",
    ),
    Mutant(
        "a failed check leaves its file",
        "boundary/writing.py",
        "                temporary_name(path).unlink(missing_ok=True)\n",
        "                pass\n",
        f"{EXPORT} -k wrong_export",
    ),
    Mutant(
        "discrete actions lose their start",
        "envs/actions.py",
        "actions.long() + torch.as_tensor(self._first)",
        "actions.long()",
        f"{EXPORT} -k discrete_actions_start",
    ),
    Mutant(
        "exported actions leave their bounds",
        "envs/actions.py",
        "        return scaled.clamp(low, high)\n",
        "        return scaled\n",
        f"{EXPORT} -k tensors_are_scaled",
    ),
    Mutant(
        "a policy that changes its state is exported",
        GRAPH,
        "    if changed:\n",
        "    if changed is None:\n",
        f"{EXPORT} -k cannot_be_exported",
    ),
    Mutant(
        "paths of this machine stay in the model",
        "boundary/onnx_format.py",
        "        del item.metadata_props[:]\n",
        "",
        f"{EXPORT} -k equal_files",
    ),
    Mutant(
        "a standalone policy reads weights from other files",
        PROGRAM,
        "options.add_session_config_entry(key, str(path))",
        "options.add_session_config_entry(key, str(path.parent))",
        f"{STANDALONE} -k external",
    ),
    Mutant(
        "a changed model is not noticed",
        PROGRAM,
        '["sha256"] != digest',
        '["sha256"] is None',
        f"{STANDALONE} -k changed_weight",
    ),
    Mutant(
        "weights are exported without their layout",
        "models/mlp.py",
        'f"{name}.weight": weight.mT',
        'f"{name}.weight": weight',
        "tests/models/test_named_weights.py -k ordinary_layers",
    ),
    Mutant(
        "exported critics share the memory of their encoder",
        "api/exporting.py",
        "tensor.detach().clone(memory_format=torch.contiguous_format)",
        "tensor.detach().contiguous()",
        "tests/api/test_export_conformance.py -k layer_by_layer",
    ),
]
