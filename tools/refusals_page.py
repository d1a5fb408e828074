"""Write docs/reference/refusals.md from tests/localcloud/requests/refused.yaml, whose rows a test sends one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "tests/localcloud/requests/refused.yaml"
PAGE = "docs/reference/refusals.md"
_MAX_LENGTH = 60  # characters of a change
_HEAD = """\
# Local cloud refusals

The [local cloud](../how-to/local-cloud.md) is a server on your machine that answers AWS calls. It refuses the requests
in this table, and tries to answer as SageMaker does. A test sends each request to a running local cloud.
`tools/refusals_page.py` writes this page from the table of this test (`tests/localcloud/requests/refused.yaml`).

The column `source` shows how certain it is that AWS gives the same answer:

- *model*: botocore's model of the service has the constraint, and the message has the form of the service's other
  messages.
- *quoted* or *documented*: the linked page quotes the message (of SageMaker, or of another service with the same rule),
  or documents the rule.
- *memory*: we know no page that quotes the message, and wrote it without a source. AWS refuses the request, but AWS's
  exact message is not certain. Do not compare the message in a test.
- *local*: a limit of the local cloud. AWS accepts the request.

The column `change` shows how the request differs from a valid request. `account.yaml` is the file that [describes the
simulated account](../how-to/local-cloud.md#describe-the-account). `...` marks a value that is cut. Botocore's model
allows an `InstanceCount` of 0, which SageMaker refuses with a second check: the two messages name different minimums.
The HTTP status is 400, unless the column `code` shows another one. In the local cloud, a message about a wrong type
ends with the name of the field. AWS's message does not contain this name. AWS ignores unknown fields. The local cloud
refuses unknown fields, because it cannot apply them.

| request | change | code | message contains | source |
|---|---|---|---|---|
"""


def read_rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = YAML(typ="safe", pure=True).load(TABLE.read_text())
    return rows


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    return _HEAD + "".join(f"| {' | '.join(_cells(one))} |\n" for one in rows)


def _cells(row: Mapping[str, Any]) -> list[str]:
    changes = [_change(path, value) for path, value in row["change"].items()]
    if "account" in row:
        changes.append(f"account.yaml: {_code(row['account'])}")
    call = row.get("call", "CreateTrainingJob")
    status = row.get("status", 400)
    code = row["code"] if status == 400 else f"{row['code']} ({status})"
    return [call, "; ".join(changes) or "none", code, _code(row["message"]), _source(row["source"])]


def _change(path: str, value: Any) -> str:
    if value == "~absent":
        return f"`{path}` absent"
    if value in ("~long", "~many"):
        return f"`{path}` too {'long' if value == '~long' else 'many'}"
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return f"`{path}`: {_code(text if len(text) <= _MAX_LENGTH else f'{text[:_MAX_LENGTH]}...')}"


def _code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`"


def _source(source: str) -> str:
    if not source.startswith("https://"):
        return source
    return f"[{'documented' if 'docs.aws.amazon.com' in source else 'quoted'}]({source})"


if __name__ == "__main__":
    (ROOT / PAGE).write_text(page(read_rows()))
