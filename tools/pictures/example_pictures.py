"""Draw the pictures of docs/how-to/serving/examples.md: each template's training and its model's answers.

    python tools/pictures/example_pictures.py [TEMPLATE ...]

Each template is written by `init`, trained locally, deployed and asked, as a user does it; the pictures show the losses
of that job and the answers of that endpoint. All six take about five minutes, in the environments of `make setup`,
`make test-programs` and `make test-tensorflow`. The pictures are docs/assets/example-TEMPLATE.svg.
"""

from __future__ import annotations

import base64
import csv
import json
import os
import struct
import subprocess
import sys
import tempfile
import textwrap
import zlib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "docs" / "assets"
PYTHONS = {"mnist": ".venv", "mnist_tf2": ".venv-tensorflow", "mnist_keras": ".venv-tensorflow"}
TEMPLATES = (*PYTHONS, "bert", "bert_loop", "detection")
#: Runs in the template's folder: trains, deploys, sends the files of the arguments, and prints all as JSON.
RUN = """\
import json, sys
from pathlib import Path
from smdp_launch import deploy, launch, plan
job = launch(plan("job.yaml", local=True, hosts=1, workers_per_host=2))
assert job.wait().summary == "completed"
metrics = job.metrics()
endpoint = deploy(job)
try:
    answers = [json.loads(endpoint.invoke(Path(one).read_bytes(), sys.argv[1])) for one in sys.argv[2:]]
finally:
    endpoint.undeploy()
losses = [one.mean for one in metrics.metrics["loss"]]
Path("ran.json").write_text(json.dumps({"losses": losses, "results": metrics.results, "answers": answers}))
"""
WIDTH, HEIGHT, LEFT = 760, 230, 300
INK, PALE, LINE, RIGHT, WRONG = "#1f2933", "#5f6b7a", "#3f51b5", "#1b7f3b", "#c62828"
SIDE = 28


class Ran(NamedTuple):
    """A template's run: the mean losses in order, the results of the training log, and the answers of the endpoint."""

    losses: list[float]
    results: dict[str, Any]
    answers: list[Any]


def main(names: Sequence[str]) -> None:
    for name in names or TEMPLATES:
        with tempfile.TemporaryDirectory() as folder:
            picture = PICTURES.get(name.partition("_")[0], digits)(name, Path(folder))
        path = ASSETS / f"example-{name}.svg"
        path.write_text(picture, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB", flush=True)


def init(name: str, folder: Path) -> None:
    python(name, folder, "-m", "smdp_launch", "init", "--template", name)


def run(name: str, folder: Path, content_type: str, requests: Sequence[Path]) -> Ran:
    python(name, folder, "-c", RUN, content_type, *map(str, requests))
    return Ran(**json.loads((folder / "ran.json").read_text(encoding="utf-8")))


def python(name: str, folder: Path, *arguments: str) -> None:
    program = ROOT / PYTHONS.get(name, ".venv-programs") / "bin" / "python"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    ran = subprocess.run(
        [program, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if ran.returncode != 0:
        raise SystemExit(f"{name}: {' '.join(arguments[:4])} failed\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")


def digits(name: str, folder: Path) -> str:
    """The first digit of each label that the model gets right, and two that it gets wrong."""
    init(name, folder)
    test = folder / "data" / "test"
    ran = run(name, folder, "application/octet-stream", [test / "images.idx3"])
    pixels, labels = (test / "images.idx3").read_bytes()[16:], (test / "labels.idx1").read_bytes()[8:]
    ours = ran.answers[0]["labels"]
    right = [ours.index(label) for label in range(10) if label in ours]
    wrong = [index for index, label in enumerate(labels) if ours[index] != label]
    shown = sorted((index for index in right if ours[index] == labels[index]), key=lambda index: labels[index])
    parts = []
    for place, index in enumerate([*shown[:10], *wrong[:2]]):
        x, y = LEFT + 16 + place % 6 * 72, 44 + place // 6 * 88
        ink = bytes(255 - one for one in pixels[index * SIDE * SIDE : (index + 1) * SIDE * SIDE])
        parts.append(picture(png(ink, SIDE), x, y, 56))
        is_right = ours[index] == labels[index]
        said = str(ours[index]) if is_right else f"{ours[index]}, is {labels[index]}"
        parts.append(text(x + 28, y + 74, said, RIGHT if is_right else WRONG, anchor="middle"))
    count = round(ran.results["accuracy"] * len(labels))
    return card(ran.losses, f"{count} of {len(labels)} new digits are right", parts)


def reviews(name: str, folder: Path) -> str:
    """Four reviews of the held-out data: of each label one with "but", or with a negation."""
    init(name, folder)
    with (folder / "data" / "test" / "reviews.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts = [
        next(one["text"] for one in rows if one["label"] == label and word in one["text"].split())
        for label in ("1", "0")
        for word in ("not", "but")
    ]
    (folder / "request.json").write_text(json.dumps(texts), encoding="utf-8")
    ran = run(name, folder, "application/json", [folder / "request.json"])
    parts = []
    for place, (one, answer) in enumerate(zip(texts, ran.answers[0], strict=True)):
        y = 58 + place * 44
        color = RIGHT if answer["label"] == "positive" else WRONG
        lines = textwrap.wrap(one, 48)[:2]
        parts += [text(LEFT + 16, y + 15 * row, line, INK) for row, line in enumerate(lines)]
        parts.append(text(WIDTH - 16, y, f"{answer['label']} {answer['score']:.2f}", color, anchor="end"))
    count = round(ran.results["accuracy"] * len(rows))
    return card(ran.losses, f"{count} of {len(rows)} new reviews are right", parts)


def shapes(name: str, folder: Path) -> str:
    """Three images of the held-out data with the boxes that the model finds."""
    init(name, folder)
    images = sorted((folder / "data" / "test" / "images").glob("*.png"))[:3]
    ran = run(name, folder, "image/png", images)
    zoom, parts = 136 / 64, []
    for place, (file, answer) in enumerate(zip(images, ran.answers, strict=True)):
        x, y = LEFT + 16 + place * 148, 52
        taken: list[tuple[float, float]] = []
        parts.append(picture(file.read_bytes(), x, y, 136))
        for box, kind, score in zip(answer["boxes"], answer["names"], answer["scores"], strict=True):
            left, top, right, bottom = (one * zoom for one in box)
            size = f'width="{right - left:.1f}" height="{bottom - top:.1f}"'
            parts.append(
                f'<rect x="{x + left:.1f}" y="{y + top:.1f}" {size} fill="none" stroke="#ffeb3b" stroke-width="2"/>'
            )
            label = f"{kind} {score:.2f}"
            across = min(max(x + left, x), x + 136 - 6.5 * len(label))
            # Above the box, below it, or within it: the first place that is in the image and has no other label.
            down = [y + one for one in (top - 4, bottom + 12, *range(int(top) + 13, 134, 13)) if 10 < one < 134]
            free = [one for one in down if all(abs(across - at) > 72 or abs(one - row) > 12 for at, row in taken)]
            taken.append((across, (free or down)[0]))
            parts.append(text(*taken[-1], label, "#ffffff", size=11, halo="#000000"))
    return card(ran.losses, f"{ran.results['found']:.0%} of the objects in 100 new images are found", parts)


PICTURES = {"bert": reviews, "detection": shapes}


def card(losses: Sequence[float], title: str, parts: Sequence[str]) -> str:
    """The curve of the losses at the left, and the answers at the right, on a light background of its own."""
    top, bottom, left, right = 52, HEIGHT - 40, 52, LEFT - 16
    highest = max(losses)
    step = (right - left) / max(len(losses) - 1, 1)
    points = " ".join(
        f"{left + step * i:.1f},{bottom - (bottom - top) * one / highest:.1f}" for i, one in enumerate(losses)
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="Helvetica, Arial, sans-serif" font-size="13">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#f7f8fa"/>',
            text(16, 26, "training", INK, weight="bold"),
            text(LEFT + 16, 26, title, INK, weight="bold"),
            f'<path d="M{left},{top} V{bottom} H{right}" fill="none" stroke="{PALE}"/>',
            text(left - 6, top + 5, f"{highest:.2f}", PALE, anchor="end", size=11),
            text(left - 6, bottom + 4, "0", PALE, anchor="end", size=11),
            text((left + right) / 2, bottom + 22, f"mean loss of {len(losses)} steps", PALE, anchor="middle", size=11),
            f'<polyline points="{points}" fill="none" stroke="{LINE}" stroke-width="1.5"/>',
            *parts,
            "</svg>\n",
        ]
    )


def text(  # noqa: PLR0913 (attributes of one element)
    x: float,
    y: float,
    content: str,
    fill: str,
    *,
    anchor: str = "start",
    size: int = 13,
    weight: str = "",
    halo: str = "",
) -> str:
    more = f' font-weight="{weight}"' if weight else ""
    more += f' stroke="{halo}" stroke-width="3" paint-order="stroke"' if halo else ""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} fill="{fill}"{more}>{escape(content)}</text>'


def picture(data: bytes, x: float, y: float, side: int) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{side}" height="{side}"'
    return f'<image {place} href="data:image/png;base64,{base64.b64encode(data).decode()}"/>'


def png(pixels: bytes, side: int) -> bytes:
    """A square gray image with 8 bits for each pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + pixels[at : at + side] for at in range(0, len(pixels), side))
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows, 9)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


if __name__ == "__main__":
    main(sys.argv[1:])
