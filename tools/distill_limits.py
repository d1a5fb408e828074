"""Distill the limits of the service's requests from botocore's model into smdp_launch/catalog/dated/limits.json.

python tools/distill_limits.py            write the file from the installed botocore
python tools/distill_limits.py --check    print the differences; fails only if the installed botocore is
                                          the one that the file names
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import botocore
from botocore.loaders import Loader

FILE = Path(__file__).resolve().parent.parent / "smdp_launch" / "catalog" / "dated" / "limits.json"
OPERATIONS = (
    *("CreateTrainingJob", "CreateHyperParameterTuningJob"),
    *("CreateModel", "CreateEndpointConfig", "CreateEndpoint", "CreateTransformJob"),
)

#: Java's character classes in Python, inside brackets. ``\w`` includes the underscore, which all patterns of the
#: service with these classes allow.
CLASSES = {
    r"\p{Alnum}": "a-zA-Z0-9",
    r"\p{L}": r"\w",
    r"\p{N}": r"\w",
    r"\p{Z}": r"\s",
}
#: What ``\s`` has beyond Java's separators. A class with the separators themselves takes Python 10 ms to compile.
NO_CONTROLS = r"(?!(?s:.*)[\t-\r\x1c-\x1f\x85])"

#: In the documentation of fields that a request may not have.
READ_ONLY = "read-only and isn't accepted in"

#: The types that smdp_launch/request/limits.py supports.
TYPES = {"structure", "map", "list", "string", "integer", "long", "float", "double", "boolean"}

Shape = dict[str, Any]
Table = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--file", type=Path, default=FILE)
    arguments = parser.parse_args()
    if arguments.check:
        return check(json.loads(arguments.file.read_text("utf-8")))
    table = distill(datetime.now(timezone.utc).date().isoformat())
    arguments.file.write_text(written(table), "utf-8")
    print(f"{arguments.file}: {len(table['shapes'])} shapes of botocore {table['botocore']}")
    return 0


def check(table: Table) -> int:
    changes = list(differences(table, distill(table["checked"])))
    for change in changes:
        print(change)
    same_version = table["botocore"] == botocore.__version__
    if not changes:
        print(f"the file matches botocore {botocore.__version__}")
    elif not same_version:
        print(f"the file is for botocore {table['botocore']}, and botocore {botocore.__version__} is installed")
    return int(bool(changes) and same_version)


def distill(checked: str) -> Table:
    """The table of the installed botocore.

    Args:
        checked: the ISO date for the table.
    """
    model = Loader().load_service_model("sagemaker", "service-2")
    operations = {name: model["operations"][name]["input"]["shape"] for name in OPERATIONS}
    shapes: dict[str, Shape] = {}
    for root in operations.values():
        _collect(model["shapes"], root, shapes)
    return {
        "source": "botocore's model of the service sagemaker, API 2017-07-24; written by tools/distill_limits.py",
        "botocore": botocore.__version__,
        "checked": checked,
        "operations": operations,
        "shapes": dict(sorted(shapes.items())),
    }


def _collect(model: dict[str, Any], name: str, into: dict[str, Shape]) -> None:
    if name in into:
        return
    source = model[name]
    if source["type"] not in TYPES:
        raise ValueError(f"{name} is a {source['type']}, which smdp_launch/request/limits.py does not support")
    shape: Shape = {key: source[key] for key in ("type", "required", "min", "max", "enum") if key in source}
    if "pattern" in source:
        shape["pattern"] = python_pattern(source["pattern"])
    if "members" in source:
        members = source["members"].items()
        shape["members"] = {name: one["shape"] for name, one in members if not _is_read_only(one)}
    shape |= {role: source[role]["shape"] for role in ("member", "key", "value") if role in source}
    into[name] = shape
    for inner in [
        *shape.get("members", {}).values(),
        *(shape[role] for role in ("member", "key", "value") if role in shape),
    ]:
        _collect(model, inner, into)


def _is_read_only(member: dict[str, Any]) -> bool:
    """Whether only the service sets this field. The model has one shape for a request and for its description."""
    return READ_ONLY in member.get("documentation", "")


def python_pattern(pattern: str) -> str:
    """A pattern of the model for ``re.compile(..., re.ASCII)``, with Java's meaning of digits and letters.

    Raises:
        ValueError: the pattern has a class without a translation.
    """
    unicode = r"\p{L}" in pattern or r"\p{N}" in pattern
    if r"\p{Z}" in pattern:
        pattern = NO_CONTROLS + pattern
    for java, python in CLASSES.items():
        pattern = pattern.replace(java, python)
    if r"\p" in pattern:
        raise ValueError(f"a class in {pattern} has no translation")
    return f"(?u:{pattern})" if unicode else pattern


def written(table: Table) -> str:
    """JSON with one line for each shape, so that differences between versions are readable."""
    head = json.dumps({key: value for key, value in table.items() if key != "shapes"}, indent=2)
    shapes = ",\n".join(f"    {json.dumps(name)}: {json.dumps(shape)}" for name, shape in table["shapes"].items())
    return f'{head.removesuffix(chr(10) + "}")},\n  "shapes": {{\n{shapes}\n  }}\n}}\n'


def differences(old: Table, new: Table) -> Iterator[str]:
    """A line for each addition, removal and change from ``old`` to ``new``."""
    yield from _keys("operation", old["operations"], new["operations"])
    yield from _keys("shape", old["shapes"], new["shapes"])
    for name in sorted(old["shapes"].keys() & new["shapes"].keys()):
        yield from _shape(name, old["shapes"][name], new["shapes"][name])


def _keys(what: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    yield from (f"{what} {name}: added" for name in sorted(new.keys() - old.keys()))
    yield from (f"{what} {name}: removed" for name in sorted(old.keys() - new.keys()))


def _shape(name: str, old: Shape, new: Shape) -> Iterator[str]:
    yield from _keys(f"member of {name}", old.get("members", {}), new.get("members", {}))
    for member in sorted(old.get("members", {}).keys() & new.get("members", {}).keys()):
        if old["members"][member] != new["members"][member]:
            yield f"member of {name} {member}: {old['members'][member]} is now {new['members'][member]}"
    for key in ("enum", "required"):
        before, after = set(old.get(key, [])), set(new.get(key, []))
        yield from (f"{key} of {name} {value}: added" for value in sorted(after - before))
        yield from (f"{key} of {name} {value}: removed" for value in sorted(before - after))
    for key in ("type", "min", "max", "pattern", "member", "key", "value"):
        if old.get(key) != new.get(key):
            yield f"{key} of {name}: {old.get(key)} is now {new.get(key)}"


if __name__ == "__main__":
    sys.exit(main())
