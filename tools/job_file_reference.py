"""Write the table of keys and the schema for editors from the job file's models into docs.

python tools/job_file_reference.py            # rewrite docs/reference/job-file.md and docs/job.schema.json
python tools/job_file_reference.py --check    # report whether they are up to date
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel, S3Channel
from smdp_launch.jobfile.model.editor import schema_text
from smdp_launch.jobfile.model.schema import element, fields, model_of
from smdp_launch.jobfile.model.spec import JobSpec

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGIN, END = "<!-- keys: begin -->\n", "<!-- keys: end -->\n"


def main() -> int:
    page = DOCS / "reference" / "job-file.md"
    text = page.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    wanted = {page: f"{before}{BEGIN}{table()}{END}{after}", DOCS / "job.schema.json": schema_text()}
    stale = [path for path, content in wanted.items() if not path.exists() or path.read_text() != content]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.name} is stale: run tools/job_file_reference.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path])
    return 0


def table() -> str:
    lines = ["| key | default | meaning |", "|---|---|---|"]
    return "\n".join([*lines, *rows(JobSpec, "")]) + "\n"


def rows(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, info in fields(model).items():
        if info.deprecated:
            continue
        inner = element(info.annotation)
        nested = model_of(info.annotation, None) if name != "channels" else None
        of_each = model_of(inner, None) if inner is not None and str(info.annotation).startswith("dict") else None
        if name == "channels" and model is JobSpec:
            yield row("channels", info.description, "")
            for kind in (S3Channel, FsxChannel, EfsChannel):
                yield from rows(kind, "channels.NAME.")
        elif nested is not None:
            yield from rows(nested, f"{prefix}{name}.")
        else:
            shown = f"{prefix}{name}.NAME" if inner is not None and str(info.annotation).startswith("dict") else None
            yield row(shown or f"{prefix}{name}", info.description, default(info))
            if of_each is not None:
                yield from rows(of_each, f"{prefix}{name}.NAME.")


def row(key: str, description: str | None, default_: str) -> str:
    return f"| `{key}` | {default_} | {(description or '').replace('|', chr(92) + '|')} |"


def default(info: Any) -> str:
    if info.is_required():
        return ""
    value = info.get_default(call_default_factory=True)
    if value is None and "by default" in (info.description or "").lower():
        return "see text"
    return "none" if value in (None, {}, []) else f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    sys.exit(main())
