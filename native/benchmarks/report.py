"""Prints the tables and plots of docs/reference/performance.md from the results of suite.py.

Usage: ``report.py FOLDER [--plots FOLDER]``.

The plots need matplotlib.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Dict, List, Optional, Tuple

Row = Dict[str, object]
KIB, MIB = 1 << 10, 1 << 20
SHAPES = ("2x8", "4x4", "8x1", "2x4-unshaped", "1x8")
NAMES = {
    "smdp": "smdp",
    "gloo": "Gloo",
    "gloo4": "Gloo, 4 interfaces",
    "openmpi": "Open MPI",
    "deepspeed": "DeepSpeed shm",
}


def size_name(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def load(folder: Path) -> Dict[str, List[Row]]:
    """Rows by case; those of "1x8+64M" join "1x8"."""
    figures: Dict[str, List[Row]] = {}
    for path in sorted(folder.glob("*.json")):
        figures.setdefault(path.stem.split("+")[0], []).extend(json.loads(path.read_text())["rows"])
    return figures


def figure(row: Row, name: str) -> float:
    return float(str(row[name]))


def find(rows: List[Row], contender: str, size: int) -> Optional[Row]:
    return next((row for row in rows if row["contender"] == contender and row["bytes"] == size), None)


def median_table(rows: List[Row]) -> List[str]:
    """Milliseconds by contender and size; in brackets, the ratio to this engine."""
    sizes = sorted({int(str(row["bytes"])) for row in rows})
    lines = ["| | " + " | ".join(size_name(size) for size in sizes) + " |", "|---" * (len(sizes) + 1) + "|"]
    for contender, title in NAMES.items():
        found = [find(rows, contender, size) for size in sizes]
        if any(found):
            lines.append(f"| {title} | " + " | ".join(cell(row) for row in found) + " |")
    return lines


def cell(row: Optional[Row]) -> str:
    if row is None:
        return ""
    took = figure(row, "median_ms")
    text = f"{took:.3g}" if took < 100 else f"{took:.0f}"
    if row["contender"] == "smdp":
        return (
            text
            if row["wire_share"] is None or figure(row, "bytes") < 4 * MIB
            else (f"{text} ({100 * figure(row, 'wire_share'):.1f} %)")
        )
    return f"{text} ({figure(row, 'times_ours'):.2f})"


def cost_table(figures: Dict[str, List[Row]]) -> List[str]:
    """CPU seconds per GiB, and memory for the largest size of each shape."""
    lines = ["| shape, size | | CPU s/GiB | PSS MiB beyond the buffers |", "|---|---|---|---|"]
    for shape in SHAPES:
        rows = figures.get(shape, [])
        largest = max((int(str(row["bytes"])) for row in rows), default=0)
        for contender, title in NAMES.items():
            row = find(rows, contender, largest)
            if row is not None:
                lines.append(
                    f"| {shape}, {size_name(largest)} | {title} | {figure(row, 'cpu_s_per_gib'):.1f} "
                    f"| {figure(row, 'pss_mib'):.0f} |"
                )
    return lines


def type_table(figures: Dict[str, List[Row]]) -> List[str]:
    lines = ["| shape, size | float32 | float16 | bfloat16 |", "|---|---|---|---|"]
    for shape in SHAPES:
        of_type = {name: figures.get(f"{shape}-{name}", []) for name in ("float32", "float16", "bfloat16")}
        for size in sorted({int(str(row["bytes"])) for row in of_type["float32"]}):
            found = [find(rows, "smdp", size) for rows in of_type.values()]
            cells = ["" if row is None else f"{figure(row, 'median_ms'):.1f}" for row in found]
            lines.append(f"| {shape}, {size_name(size)} | " + " | ".join(cells) + " |")
    return lines


def trace_table(figures: Dict[str, List[Row]]) -> List[str]:
    lines = ["| gradients | MiB | " + " | ".join(list(NAMES.values())[:4]) + " |", "|---" * 6 + "|"]
    for trace in ("acceptance", "mask-rcnn", "bert-large"):
        rows = figures.get(trace, [])
        if rows:
            cells = [cell(next((row for row in rows if row["contender"] == name), None)) for name in list(NAMES)[:4]]
            lines.append(f"| {trace} | {figure(rows[0], 'bytes') / MIB:.0f} | " + " | ".join(cells) + " |")
    return lines


def plot(figures: Dict[str, List[Row]], folder: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "smdp"
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    for shape in SHAPES:
        rows = figures.get(shape, [])
        chart, axes = pyplot.subplots(figsize=(6, 3.6))
        for contender, title in NAMES.items():
            points: List[Tuple[int, float]] = sorted(
                (int(str(row["bytes"])), figure(row, "median_ms")) for row in rows if row["contender"] == contender
            )
            if points:
                axes.plot(*zip(*points), marker="o", label=title, linewidth=2.5 if contender == "smdp" else 1.2)
        sizes = sorted({int(str(row["bytes"])) for row in rows})
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="float32 payload of a rank",
            ylabel="median ms",
            title=f"all_reduce, {shape}",
        )
        axes.set_xticks(sizes, [size_name(size) for size in sizes])
        axes.minorticks_off()
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
        chart.tight_layout()
        chart.savefig(folder / f"all_reduce-{shape}.svg", metadata={"Date": None})
        pyplot.close(chart)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--plots", type=Path, help="the folder for the SVG files")
    arguments = parser.parse_args()
    figures = load(arguments.folder)
    for shape in SHAPES:
        if shape in figures:
            print("\n".join([f"### {shape}", "", *median_table(figures[shape]), ""]))
    for title, lines in (
        ("Cost", cost_table(figures)),
        ("Element types", type_table(figures)),
        ("Gradients of models", trace_table(figures)),
    ):
        print("\n".join([f"### {title}", "", *lines, ""]))
    if arguments.plots:
        plot(figures, arguments.plots)
    return 0


if __name__ == "__main__":
    sys.exit(main())
