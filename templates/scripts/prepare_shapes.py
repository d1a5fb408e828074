"""Make two channels of small images with shapes for object detection: 300 for training and 100 for tests.

    python prepare_shapes.py data/shapes

Each image has one to three discs, squares and triangles on a noisy background. A channel has the images
images/NUMBER.png in RGB, the masks masks/NUMBER.png whose pixels are 0 or the number of an object, and labels.json with
the labels of the objects of each image. Data of your own in this form can replace them.
"""

import argparse
import json
import random
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

TRAIN, TEST = 300, 100
SIDE = 64
LABELS = {1: "disc", 2: "square", 3: "triangle"}

Pixel = tuple[int, int]


def shape_of(label: int, left: int, top: int, side: int) -> set[Pixel]:
    """The pixels (x, y) of a shape in the square with this corner and side."""
    half = side / 2
    inside: dict[int, Callable[[float, float], bool]] = {
        1: lambda x, y: (x - half) ** 2 + (y - half) ** 2 <= half**2,
        2: lambda x, y: True,
        3: lambda x, y: abs(x - half) <= y / 2,
    }
    square = ((x, y) for x in range(side) for y in range(side))
    return {(left + x, top + y) for x, y in square if inside[label](x + 0.5, y + 0.5)}


def draw_image(draw: random.Random) -> tuple[bytes, bytes, list[int]]:
    """The RGB bytes of an image, the bytes of its mask, and the labels of objects 1, 2 and so on."""
    base = [draw.randrange(80) for _ in range(3)]
    image = bytearray(base[i % 3] + draw.randrange(25) for i in range(3 * SIDE * SIDE))
    mask, labels = bytearray(SIDE * SIDE), []
    for _ in range(draw.randint(1, 3)):
        label, side = draw.choice(list(LABELS)), draw.randint(14, 24)
        pixels = shape_of(label, draw.randrange(SIDE - side), draw.randrange(SIDE - side), side)
        places = [y * SIDE + x for x, y in pixels]
        if any(mask[at] for at in places):
            continue  # objects do not overlap
        labels.append(label)
        color = bytes(draw.randrange(130, 256) for _ in range(3))
        for at in places:
            mask[at] = len(labels)
            image[3 * at : 3 * at + 3] = color
    return bytes(image), bytes(mask), labels


def png(pixels: bytes, channels: int) -> bytes:
    """A PNG file: 8 bits for each of 1 (gray) or 3 (RGB) channels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    width = SIDE * channels
    rows = b"".join(b"\0" + pixels[at : at + width] for at in range(0, len(pixels), width))
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2 if channels == 3 else 0, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def write_channel(folder: Path, images: Iterable[tuple[bytes, bytes, list[int]]]) -> None:
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    labels = {}
    for number, (image, mask, labels_of) in enumerate(images):
        name = f"{number:04}"
        (folder / "images" / f"{name}.png").write_bytes(png(image, 3))
        (folder / "masks" / f"{name}.png").write_bytes(png(mask, 1))
        labels[name] = labels_of
    (folder / "labels.json").write_text(json.dumps(labels), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=5)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    for channel, count in (("train", TRAIN), ("test", TEST)):
        write_channel(arguments.folder / channel, (draw_image(draw) for _ in range(count)))
    print(f"{TRAIN} images for training and {TEST} for tests are in {arguments.folder}")


if __name__ == "__main__":
    main()
