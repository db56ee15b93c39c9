"""Read and write YAML as plain data, without object tags, aliases or duplicate keys."""

from __future__ import annotations

import re
from typing import Any, NoReturn

import yaml

from rl_training.errors import ConfigError
from rl_training.text import printable, shorten, shown


class _Loader(yaml.SafeLoader):
    """Loads mappings, lists, text, numbers, true, false and null; rejects duplicate keys.

    1e-3 is read as a number. Aliases are rejected, since a few lines can expand to fill all memory.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for part, _ in node.value:
            if not isinstance(part, yaml.ScalarNode):
                self._reject(part, "a key should be a single value")
            key = self.construct_object(part, deep=True)
            if key in seen:
                self._reject(part, f"the key {shown(key)} appears twice")
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        """Return a number; reject very long ones, which Python parses slowly or not at all."""
        if len(node.value) > MAX_DIGITS:
            self._reject(node, f"a number should have at most {MAX_DIGITS} digits")
        is_int = node.tag.endswith(":int")
        return self.construct_yaml_int(node) if is_int else self.construct_yaml_float(node)

    def construct_other(self, node: yaml.Node) -> NoReturn:
        """Reject dates, binary data, sets and ordered mappings."""
        kind = node.tag.rpartition(":")[2]
        value = f"{shown(node.value)} is" if isinstance(node, yaml.ScalarNode) else "there is"
        self._reject(
            node, f"{value} a value of type {kind}, which is not allowed; put text in quotes"
        )

    def _reject(self, node: yaml.Node, problem: str) -> NoReturn:
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


MAX_DIGITS = 400
"""Maximum length of a number in YAML; a float has fewer digits before its decimal point."""

_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_number)
for _kind in ("timestamp", "binary", "set", "omap", "pairs"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_other)


def parse_yaml(text: str, source: str) -> Any:
    """Parse YAML as plain data; ``source`` is its name in errors."""
    try:
        return _Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        problem = f"{error.problem or error.context}{line}"
    except RecursionError:
        problem = "it is nested too deeply"
    except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:
        # PyYAML raises its own errors, and the others for values that do not fit a tag: !!bool x
        problem = str(error)
    raise ConfigError(
        f"{shorten(printable(source))} is not plain YAML: {shorten(printable(problem), 200)}"
    )


class _Dumper(yaml.SafeDumper):
    """Writes an object that occurs twice a second time, since `parse_yaml` rejects aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def dump_yaml(data: Any) -> str:
    """Return plain data as YAML; mappings keep their order."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True))


def yaml_text(value: Any) -> str:
    """Return a value as YAML on one line."""
    plain = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(plain, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("...\n").strip()
