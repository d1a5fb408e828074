"""Write the lists of packages in docs/explanation/architecture.md from the code.

    python tools/architecture_page.py            # rewrite them
    python tools/architecture_page.py --check    # report whether they are up to date

The first sentence of its docstring describes a Python package; native/README.md describes the folders of native/. The
launcher's packages are in the order of the import contract in pyproject.toml.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest and mypy bring it
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
PACKAGES = {
    "smdp_launch": ROOT,
    "smdp_entrypoint": ROOT / "containers/entrypoint",
    "smdp_engine": ROOT / "native/python",
}
NATIVE = ROOT / "native" / "README.md"


def main() -> int:
    text = PAGE.read_text()
    wanted = page(text)
    if "--check" in sys.argv:
        if text != wanted:
            print(f"{PAGE.relative_to(ROOT)} is stale: run tools/architecture_page.py")
        return int(text != wanted)
    PAGE.write_text(wanted)
    return 0


def page(text: str) -> str:
    """Return the page with each list between its two comments replaced."""
    lists = {"imports": imports(), **{name: package_table(name) for name in PACKAGES}, "native": native_table()}
    for name, content in lists.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}{content}{end}{rest.split(end, 1)[1]}"
    return text


def layers() -> list[list[str]]:
    """Return the layers of the launcher, the highest first: names of modules without `smdp_launch.`."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (first,) = [one for one in contracts if one["name"] == "imports run one way"]
    return [[name.strip().removeprefix("smdp_launch.") for name in layer.split("|")] for layer in first["layers"]]


def imports() -> str:
    return (
        "```text\n"
        + "\n".join(f"{' ' * 4 * (number > 0)}{', '.join(layer)}" for number, layer in enumerate(layers()))
        + "\n```\n"
    )


def package_table(name: str) -> str:
    order = [module for layer in layers() for module in layer]
    folder = PACKAGES[name] / name
    packages = [path.parent.relative_to(folder) for path in folder.rglob("__init__.py") if path.parent != folder]
    packages.sort(key=lambda path: (order.index(path.parts[0]) if path.parts[0] in order else len(order), path))
    rows = [f"| `{'.'.join(path.parts)}` | {first_sentence(folder / path / '__init__.py')} |" for path in packages]
    return "\n".join(["| package | content |", "|---|---|", *rows]) + "\n"


def first_sentence(module: Path) -> str:
    docstring = ast.get_docstring(ast.parse(module.read_text()))
    if not docstring:
        raise SystemExit(f"{module.relative_to(ROOT)} has no docstring: write one sentence")
    sentence = re.split(r"(?<=\.)\s", " ".join(docstring.split("\n\n")[0].split()))[0]
    return sentence.replace("``", "`").replace("|", "\\|").rstrip(".")


def native_table() -> str:
    rows = [line for line in NATIVE.read_text().splitlines() if re.match(r"\| `[\w/]+/` \|", line)]
    described = {line.split("`")[1].rstrip("/") for line in rows}
    missing = described ^ set(native_folders())
    if missing:
        raise SystemExit(f"native/README.md does not fit the folders: {', '.join(sorted(missing))}")
    return "\n".join(["| folder | content |", "|---|---|", *rows]) + "\n"


def native_folders() -> Iterator[str]:
    """Yield the folders of native/, with those of native/engine in its place."""
    for folder in (ROOT / "native").iterdir():
        if folder.name == "engine":
            yield from (f"engine/{one.name}" for one in folder.iterdir() if one.is_dir() and one.name[0] not in "._")
        elif folder.is_dir() and folder.name != "build" and folder.name[0] not in "._":
            yield folder.name


if __name__ == "__main__":
    sys.exit(main())
