"""Answers requests with the model of mnist_ddp.py: images of digits in, their labels and the probabilities out.

The serving container calls these four functions. A request is a file in the IDX format as the data of the training
(``application/octet-stream``), or a list of images, each 28 rows of 28 numbers from 0 to 255 (``application/json``).
"""

import json
import struct
from pathlib import Path

import torch
from torch import nn

try:  # SageMaker's own container takes the status of an answer only from exceptions of this class
    from sagemaker_inference.errors import BaseInferenceToolkitError as ToolkitError
except ImportError:
    ToolkitError = Exception

SIDE = 28
IDX_IMAGES = 0x803
TYPES = ("application/octet-stream", "application/json")


class RequestError(ToolkitError):
    """An answer with this status."""

    def __init__(self, status_code: int, message: str) -> None:
        Exception.__init__(self, message)
        self.status_code, self.message, self.phrase = status_code, message, message


def make_network() -> nn.Module:
    """The network of mnist_ddp.py. That script imports smdp_engine, which serving images do not have."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.Tanh(),
        nn.Conv2d(16, 32, 5, stride=2, padding=2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 64),
        nn.Tanh(),
        nn.Linear(64, 10),
    )


def model_fn(model_dir: str) -> nn.Module:
    """Called once, when the container starts."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = make_network()
    model.load_state_dict(torch.load(Path(model_dir) / "model.pt", map_location="cpu", weights_only=True))
    return model.to(device).eval()


def input_fn(body: bytes, content_type: str) -> torch.Tensor:
    """Images as (N, 1, 28, 28) floats around zero, as in the training.

    Raises:
        RequestError: the body is not in a form of the module's description.
    """
    if content_type == "application/json":
        try:
            pixels = torch.tensor(json.loads(body), dtype=torch.float32).reshape(-1, 1, SIDE, SIDE)
        except (ValueError, TypeError, RuntimeError) as error:
            raise RequestError(400, f"the body is no list of images with 28 x 28 numbers: {error}") from error
    elif content_type == "application/octet-stream":
        magic, count, height, width = struct.unpack(">IIII", body[:16]) if len(body) >= 16 else (0, 0, 0, 0)
        if (magic, height, width) != (IDX_IMAGES, SIDE, SIDE) or len(body) != 16 + count * SIDE * SIDE:
            raise RequestError(400, "the body is no IDX file with images of 28 x 28 bytes")
        pixels = torch.frombuffer(bytearray(body[16:]), dtype=torch.uint8).view(count, 1, SIDE, SIDE).float()
    else:
        raise RequestError(415, f"Content type {content_type} is not supported. Supported types: {', '.join(TYPES)}.")
    return (pixels / 255 - 0.1307) / 0.3081


@torch.no_grad()
def predict_fn(images: torch.Tensor, model: nn.Module) -> torch.Tensor:
    """The probability of each label, as (N, 10)."""
    device = next(model.parameters()).device
    return torch.softmax(model(images.to(device)), dim=1).cpu()


def output_fn(probabilities: torch.Tensor, accept: str) -> tuple[str, str]:
    """The answer and its content type, which is JSON whatever the client accepts."""
    best = probabilities.max(dim=1)
    answer = {"labels": best.indices.tolist(), "probabilities": [round(one, 4) for one in best.values.tolist()]}
    return json.dumps(answer), "application/json"
