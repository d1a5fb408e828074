"""The gradients of real models, fused into buckets, each with the time in the backward pass when it is ready.

Shapes are those of the models' parameters, in the order of their modules. Gradients become ready in the reverse order;
the time of each is proportional to its number of elements. Buckets are filled as in DistributedDataParallel: 1 MiB for
the first, then the given size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

Shape = tuple[int, ...]
MIB = 1 << 20


@dataclass(frozen=True)
class Bucket:
    bytes: int
    ready_us: int


def elements(shape: Shape) -> int:
    return math.prod(shape)


def _linear(inputs: int, outputs: int) -> list[Shape]:
    return [(outputs, inputs), (outputs,)]


def _norm(width: int) -> list[Shape]:
    return [(width,), (width,)]


def _bert(width: int, layers: int) -> list[Shape]:
    """The encoder of BERT, uncased, with its pooler (arXiv:1810.04805)."""
    inner = 4 * width
    shapes: list[Shape] = [(30522, width), (512, width), (2, width), *_norm(width)]
    for _ in range(layers):
        for _ in range(4):
            shapes += _linear(width, width)
        shapes += _norm(width) + _linear(width, inner) + _linear(inner, width) + _norm(width)
    return [*shapes, *_linear(width, width)]


def bert_large() -> list[Shape]:
    """335 million parameters."""
    return _bert(1024, 24)


def bert_base() -> list[Shape]:
    """109 million parameters."""
    return _bert(768, 12)


def _convolution(inputs: int, outputs: int, kernel: int, bias: bool) -> list[Shape]:
    weight: Shape = (outputs, inputs, kernel, kernel)
    return [weight, (outputs,)] if bias else [weight]


def _resnet50() -> list[Shape]:
    shapes = _convolution(3, 64, 7, False) + _norm(64)
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            for source, target, kernel in ((inputs, width, 1), (width, width, 3), (width, 4 * width, 1)):
                shapes += _convolution(source, target, kernel, False) + _norm(target)
            if block == 0:
                shapes += _convolution(inputs, 4 * width, 1, False) + _norm(4 * width)
            inputs = 4 * width
    return shapes


def mask_rcnn() -> list[Shape]:
    """Mask R-CNN with ResNet-50 and FPN for 91 classes: 45 million parameters (arXiv:1703.06870, arXiv:1612.03144)."""
    classes, width = 91, 256
    shapes = _resnet50()
    for inputs in (256, 512, 1024, 2048):
        shapes += _convolution(inputs, width, 1, True) + _convolution(width, width, 3, True)
    shapes += _convolution(width, width, 3, True) + _convolution(width, 3, 1, True) + _convolution(width, 12, 1, True)
    shapes += _linear(width * 49, 1024) + _linear(1024, 1024)
    shapes += _linear(1024, classes) + _linear(1024, 4 * classes)
    for _ in range(4):
        shapes += _convolution(width, width, 3, True)
    return [*shapes, (width, width, 2, 2), (width,), *_convolution(width, classes, 1, True)]


def acceptance() -> list[Shape]:
    """AWS's own test of its library: 512 tensors of 1 MB in half precision."""
    return [(500_000,)] * 512


TRACES: dict[str, Callable[[], list[Shape]]] = {
    "bert-large": bert_large,
    "mask-rcnn": mask_rcnn,
    "acceptance": acceptance,
}


def buckets_of(shapes: list[Shape], element_bytes: int, bucket_mib: int, backward_ms: int) -> list[Bucket]:
    """The buckets in the order in which they become ready."""
    total = sum(elements(shape) for shape in shapes)
    buckets: list[Bucket] = []
    size = done = 0
    for shape in reversed(shapes):
        size += elements(shape) * element_bytes
        done += elements(shape)
        if size >= (bucket_mib if buckets else 1) * MIB:
            buckets.append(Bucket(size, done * backward_ms * 1000 // total))
            size = 0
    if size:
        buckets.append(Bucket(size, backward_ms * 1000))
    return buckets
