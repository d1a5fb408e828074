"""Make two channels of real MNIST digits: 4,000 for training and 1,000 for tests.

    python prepare_mnist.py data/mnist
    python prepare_mnist.py data/mnist --shuffle-labels     # no model can learn from these

The digits are the 5,000 in templates/digits. They are written in MNIST's own IDX format, so that the full set can
replace them.
"""

import argparse
import lzma
import random
import struct
from pathlib import Path

DIGITS = Path(__file__).resolve().parents[1] / "digits" / "mnist_5k.xz"
NUMBER, SIDE = 5000, 28
TEST_OF_EACH_DIGIT = 100

Digit = tuple[bytes, int]


def read_digits() -> list[Digit]:
    """All digits as (784 pixels, label). The file has the pixels of all digits, then their labels."""
    data = lzma.decompress(DIGITS.read_bytes())
    labels = data[NUMBER * SIDE * SIDE :]
    return [(data[i * SIDE * SIDE : (i + 1) * SIDE * SIDE], labels[i]) for i in range(NUMBER)]


def split(digits: list[Digit], seed: int) -> tuple[list[Digit], list[Digit]]:
    """Training and test digits: no digit is in both, and each label is equally frequent in the test."""
    shuffled = random.Random(seed).sample(digits, len(digits))
    train: list[Digit] = []
    test: list[Digit] = []
    counts: dict[int, int] = {}
    for digit in shuffled:
        counts[digit[1]] = counts.get(digit[1], 0) + 1
        (test if counts[digit[1]] <= TEST_OF_EACH_DIGIT else train).append(digit)
    return train, test


def with_shuffled_labels(digits: list[Digit], seed: int) -> list[Digit]:
    labels = [label for _, label in digits]
    random.Random(seed).shuffle(labels)
    return [(pixels, label) for (pixels, _), label in zip(digits, labels, strict=True)]


def write_channel(folder: Path, digits: list[Digit]) -> None:
    """``images.idx3`` and ``labels.idx1``: magic number, big-endian sizes, then bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    images = b"".join(pixels for pixels, _ in digits)
    labels = bytes(label for _, label in digits)
    (folder / "images.idx3").write_bytes(struct.pack(">IIII", 0x803, len(digits), SIDE, SIDE) + images)
    (folder / "labels.idx1").write_bytes(struct.pack(">II", 0x801, len(digits)) + labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--shuffle-labels", action="store_true", help="give the training digits wrong labels")
    arguments = parser.parse_args()
    train, test = split(read_digits(), arguments.seed)
    if arguments.shuffle_labels:
        train = with_shuffled_labels(train, arguments.seed)
    write_channel(arguments.folder / "train", train)
    write_channel(arguments.folder / "test", test)
    print(f"{len(train)} digits for training and {len(test)} for tests are in {arguments.folder}")


if __name__ == "__main__":
    main()
