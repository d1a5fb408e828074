"""Trains twelve models for two steps each and prints the peak of the bytes that torch's allocator holds, as JSON lines.

A process of its own for each test run: it imports torch. The profiler records each allocation and release on the CPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile


class Recurrent(nn.Module):
    def __init__(self, layer: nn.Module, out: int) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(out, 8)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.layer(x)[0])


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4000, 128)
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 512, batch_first=True), 4)
        self.head = nn.Linear(128, 4000)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.body(self.embedding(x)))


class Adapted(nn.Module):
    """A frozen layer with a low-rank adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(1024, 1024)
        self.frozen.requires_grad_(False)
        self.down, self.up = nn.Linear(1024, 8, bias=False), nn.Linear(8, 1024, bias=False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.frozen(x) + self.up(self.down(x))


def perceptron(width: int = 512) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 8))


def convolutional() -> nn.Module:
    layers = [nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 128, 3), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 10))


def autoencoder() -> nn.Module:
    return nn.Sequential(nn.Linear(2048, 256), nn.GELU(), nn.Linear(256, 2048))


def decoder() -> nn.Module:
    return nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, norm_first=True)


def residual() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 32, 7, stride=2), nn.GroupNorm(8, 32), nn.Conv2d(32, 256, 5), nn.Flatten())


def floats(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(*shape)


Make = Callable[[], nn.Module]
Optimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
MODELS: dict[str, tuple[Make, Callable[[], torch.Tensor], str, Optimizer, torch.dtype]] = {
    "perceptron-sgd": (perceptron, floats(1, 512), "sgd", lambda p: torch.optim.SGD(p, 0.01), torch.float32),
    "perceptron-momentum": (
        *(perceptron, floats(1, 512), "momentum"),
        *(lambda p: torch.optim.SGD(p, 0.01, momentum=0.9), torch.float32),
    ),
    "perceptron-adamw": (perceptron, floats(1, 512), "adamw", torch.optim.AdamW, torch.float32),
    "perceptron-bfloat16": (perceptron, floats(1, 512), "adamw", torch.optim.AdamW, torch.bfloat16),
    "convolutional-adam": (convolutional, floats(2, 3, 24, 24), "adam", torch.optim.Adam, torch.float32),
    "residual-rmsprop": (residual, floats(1, 3, 32, 32), "momentum", torch.optim.RMSprop, torch.float32),
    "lstm-adagrad": (
        *(lambda: Recurrent(nn.LSTM(64, 256, 2, batch_first=True), 256), floats(1, 8, 64), "momentum"),
        *(torch.optim.Adagrad, torch.float32),
    ),
    "gru-adam": (
        *(lambda: Recurrent(nn.GRU(64, 256, batch_first=True), 256), floats(1, 8, 64), "adam"),
        *(torch.optim.Adam, torch.float32),
    ),
    "language-adamw": (
        *(Language, lambda: torch.randint(4000, (1, 16)), "adamw"),
        *(torch.optim.AdamW, torch.float32),
    ),
    "autoencoder-adafactor": (
        *(autoencoder, floats(1, 2048), "adafactor"),
        *(
            lambda p: torch.optim.Adafactor(p) if hasattr(torch.optim, "Adafactor") else torch.optim.SGD(p),
            torch.float32,
        ),
    ),
    "decoder-foreach": (
        *(decoder, floats(1, 8, 256), "adamw"),
        *(lambda p: torch.optim.AdamW(p, foreach=True), torch.float32),
    ),
    "adapted-adamw": (Adapted, floats(1, 1024), "adamw", torch.optim.AdamW, torch.float32),
}


def allocations(trained: Any) -> Iterator[int]:
    """The bytes of each allocation, and the negative bytes of each release, in order of time."""
    events = [one for one in trained.profiler.kineto_results.events() if one.name() == "[memory]"]
    yield from (one.nbytes() for one in sorted(events, key=lambda one: one.start_ns()))


def peak(make: Make, batch: Callable[[], torch.Tensor], optimizer: Optimizer, dtype: torch.dtype) -> tuple[int, Any]:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trained:
        model = make().to(dtype)
        steps = optimizer([one for one in model.parameters() if one.requires_grad])
        for _ in range(2):
            x = batch()
            steps.zero_grad()
            model(x.to(dtype) if x.is_floating_point() else x).float().pow(2).mean().backward()
            steps.step()
    held = most = 0
    for change in allocations(trained):
        held += change
        most = max(most, held)
    return most, model


def main() -> None:
    torch.manual_seed(0)
    for name, (make, batch, optimizer, steps, dtype) in MODELS.items():
        most, model = peak(make, batch, steps, dtype)
        every = [one.numel() for one in model.parameters()]
        trainable = sum(one.numel() for one in model.parameters() if one.requires_grad)
        row = {"name": name, "parameters": sum(every), "trainable": trainable, "optimizer": optimizer}
        print(json.dumps({**row, "dtype": str(dtype).removeprefix("torch."), "peak": most}), flush=True)


if __name__ == "__main__":
    main()
