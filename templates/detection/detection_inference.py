"""Answers requests with the model of detection.py: an image in, the boxes, labels and scores of its objects out.

A request is a file in the format PNG (``image/png``) or JPEG (``image/jpeg``). A box is left, top, right and bottom in
pixels. Answers with a score below 0.5 are left out.
"""

import json
from pathlib import Path

import torch
from maskrcnn import LABELS, detect, make_model, read_image
from torchvision.models.detection import MaskRCNN

try:  # SageMaker's own container takes the status of an answer only from exceptions of this class
    from sagemaker_inference.errors import BaseInferenceToolkitError as ToolkitError
except ImportError:
    ToolkitError = Exception

TYPES = ("image/png", "image/jpeg")


class RequestError(ToolkitError):
    """An answer with this status."""

    def __init__(self, status_code: int, message: str) -> None:
        Exception.__init__(self, message)
        self.status_code, self.message, self.phrase = status_code, message, message


def model_fn(model_dir: str) -> MaskRCNN:
    """Called once, when the container starts."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    saved = torch.load(Path(model_dir) / "model.pt", map_location="cpu", weights_only=True)
    model = make_model(saved["model"], saved["side"])
    model.load_state_dict(saved["weights"])
    return model.to(device).eval()


def input_fn(body: bytes, content_type: str) -> torch.Tensor:
    """Raises:
    RequestError: the body is no image in one of the two formats.
    """
    if content_type not in TYPES:
        raise RequestError(415, f"Content type {content_type} is not supported. Supported types: {', '.join(TYPES)}.")
    try:
        return read_image(body)
    except RuntimeError as error:
        raise RequestError(400, f"the body is no image that can be read: {error}") from error


def predict_fn(image: torch.Tensor, model: MaskRCNN) -> dict:
    found = detect(model, image)
    labels, pixels = found["labels"].tolist(), found["masks"].sum((1, 2)).tolist()
    named = {"boxes": found["boxes"].tolist(), "labels": labels, "names": [LABELS[one] for one in labels]}
    return {**named, "scores": found["scores"].tolist(), "pixels": pixels}  # the size of each mask


def output_fn(answer: dict, accept: str) -> tuple[str, str]:
    """The answer and its content type, which is JSON whatever the client accepts."""
    return json.dumps(answer), "application/json"
