"""Runs every case of docs/reference/performance.md with all contenders and stores the results, one JSON file per case.

Usage: ``python native/benchmarks/suite.py FOLDER [CASE...]``; then ``report.py FOLDER`` prints the tables and plots.
Needs root and a machine without other load; takes half an hour for one round.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = "smdp,gloo,gloo4,openmpi"
SIZES = "4K,64K,1M,4M,25M"
CASES = {
    "2x8": f"--shape 2x8 --rate 1000 --sizes {SIZES} --contenders {PEERS}",
    "4x4": f"--shape 4x4 --rate 1000 --sizes {SIZES} --contenders {PEERS}",
    "8x1": f"--shape 8x1 --rate 1000 --sizes {SIZES} --contenders {PEERS}",
    "2x4-unshaped": f"--shape 2x4 --sizes {SIZES} --contenders {PEERS}",
    "1x8": f"--shape 1x8 --sizes 4K,64K,1M,4M --contenders {PEERS},deepspeed",
    # Limited by memory, which other virtual machines share: only alternating measurements can be compared.
    "1x8+64M": "--shape 1x8 --sizes 64M --contenders smdp,gloo,openmpi,deepspeed --rounds 3",
    **{
        f"{shape}-{dtype}": f"--shape {shape.split('-')[0]} {rate} --sizes {sizes} --dtype {dtype} --contenders smdp"
        for shape, rate, sizes in (
            ("2x8", "--rate 1000", "4M,25M"),
            ("4x4", "--rate 1000", "4M,25M"),
            ("8x1", "--rate 1000", "4M,25M"),
            ("2x4-unshaped", "", "4M,25M"),
            ("1x8", "", "4M,64M"),
        )
        for dtype in ("float32", "float16", "bfloat16")
    },
    # Half a GB for each rank, twice.
    "acceptance": f"--shape 2x4 --rate 1000 --trace acceptance --backward-ms 0 --dtype float16 --iterations 3 "
    f"--contenders {PEERS}",
    "mask-rcnn": f"--shape 2x8 --rate 1000 --trace mask-rcnn --backward-ms 200 --iterations 3 --contenders {PEERS}",
    "bert-large": "--shape 2x4 --trace bert-large --backward-ms 200 --dtype float16 --iterations 2 "
    "--contenders smdp,gloo,gloo4",
    # The overhead of Python and PyTorch: smddp-torch minus smdp, gloo minus gloo-alone.
    **{
        f"{shape}-python": f"--shape {shape} --sizes 4K --contenders smdp,smddp-torch,gloo-alone,gloo"
        for shape in ("1x1", "1x2", "2x2")
    },
    # A backward pass as long as the transfer time: the remaining time of the sums after its end.
    "overlap": "--shape 2x2 --rate 1000 --trace bert-large --dtype float16 --iterations 3 "
    "--contenders smdp,smddp-torch,gloo,gloo4",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"one of: {', '.join(CASES)}")
    parser.add_argument("--rounds", default="1")
    arguments = parser.parse_intermixed_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in arguments.cases or CASES:
        print(f"== {name}", flush=True)
        target = arguments.folder / f"{name}.json"
        words = ["--rounds", arguments.rounds, *CASES[name].split(), "--json", str(target)]
        if subprocess.run([sys.executable, str(HERE / "run.py"), *words], check=False).returncode != 0:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
