"""A decoder-only transformer in plain operations, and batches of random tokens that it can learn by heart."""

from typing import Any, Callable, Dict, List, NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Size(NamedTuple):
    layers: int
    width: int
    heads: int
    words: int
    #: The largest number of tokens in a sequence.
    length: int


#: 124 million parameters, as many as GPT-2 has.
LARGE = Size(layers=12, width=768, heads=12, words=50_257, length=512)
SMALL = Size(layers=2, width=32, heads=2, words=101, length=32)


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.before_attention = nn.LayerNorm(size.width)
        self.queries_keys_values = nn.Linear(size.width, 3 * size.width)
        self.after_attention = nn.Linear(size.width, size.width)
        self.before_network = nn.LayerNorm(size.width)
        self.network = nn.Sequential(
            nn.Linear(size.width, 4 * size.width), nn.GELU(), nn.Linear(4 * size.width, size.width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.after_attention(self.attention(self.before_attention(x)))
        return x + self.network(self.before_network(x))

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        """Written out: the fused kernels do not give the same bits in every run."""
        batch, length, width = x.shape
        heads = self.queries_keys_values(x).view(batch, length, 3, self.heads, width // self.heads)
        queries, keys, values = heads.permute(2, 0, 3, 1, 4)
        weights = queries @ keys.transpose(-2, -1) / (width // self.heads) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = weights.masked_fill(later, float("-inf")).softmax(-1)
        return (weights @ values).transpose(1, 2).reshape(batch, length, width)


#: Tokens whose scores for all words are in memory at once.
_TOKENS_SCORED = 1024


class Transformer(nn.Module):
    """``recomputes``: the backward pass computes what is in a block again, which needs less memory for each token."""

    def __init__(self, size: Size, *, recomputes: bool = False) -> None:
        super().__init__()
        self.recomputes = recomputes
        self.words = nn.Embedding(size.words, size.width)
        self.places = nn.Embedding(size.length, size.width)
        self.blocks = nn.Sequential(*(Block(size) for _ in range(size.layers)))
        self.last = nn.LayerNorm(size.width)
        for part in self.modules():
            if isinstance(part, (nn.Linear, nn.Embedding)):
                nn.init.normal_(part.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The loss of each next token."""
        known, wanted = tokens[:, :-1], tokens[:, 1:]
        places = torch.arange(known.shape[1], device=tokens.device)
        x = self.words(known) + self.places(places)
        for block in self.blocks:
            x = self._run(block, x)
        x, wanted = self.last(x).reshape(-1, x.shape[-1]), wanted.reshape(-1)
        most = _TOKENS_SCORED if self.recomputes else len(x)
        losses = [self._run(self.loss_of, *both) for both in zip(x.split(most), wanted.split(most))]
        return torch.stack(losses).sum() / len(x)

    def loss_of(self, x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        scores = functional.linear(x, self.words.weight)
        return functional.cross_entropy(scores.float(), wanted, reduction="sum")

    def _run(self, part: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> torch.Tensor:
        if not self.recomputes:
            return part(*inputs)
        again: torch.Tensor = checkpoint(part, *inputs, use_reentrant=False, preserve_rng_state=False)
        return again


def parameters(model: nn.Module) -> int:
    return sum(one.numel() for one in model.parameters())


def batches(size: Size, ranks: int, batch: int, length: int, count: int) -> List[List[torch.Tensor]]:
    """``count`` batches of each rank, the same in every run, in pinned memory where there is a GPU."""
    generator = torch.Generator().manual_seed(7)
    shape = (count, ranks, batch, min(length, size.length) + 1)
    tokens = torch.randint(0, size.words, shape, generator=generator)
    return [[tokens[turn, rank].pin_memory() for turn in range(count)] for rank in range(ranks)]


def lowered(precision: str) -> Any:
    """The context of the forward pass."""
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    return torch.autocast("cuda", dtype=dtype, enabled=precision != "fp32")


def scaler(precision: str) -> Any:
    """The scaler of the loss, which does nothing except in fp16. torch before 2.3 has it for CUDA alone."""
    options: Dict[str, Any] = {"enabled": precision == "fp16", "init_scale": 2.0**12}
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cuda", **options)
    return torch.cuda.amp.GradScaler(**options)
