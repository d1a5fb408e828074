"""Answers requests with the model of bert_trainer.py or bert_loop.py: reviews in, their labels and scores out.

A request is JSON: a text, a list of texts, or an object whose "inputs" is one of these.
"""

import json

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

try:  # SageMaker's own container takes the status of an answer only from exceptions of this class
    from sagemaker_inference.errors import BaseInferenceToolkitError as ToolkitError
except ImportError:
    ToolkitError = Exception

Loaded = tuple[PreTrainedTokenizerBase, PreTrainedModel]


class RequestError(ToolkitError):
    """An answer with this status."""

    def __init__(self, status_code: int, message: str) -> None:
        Exception.__init__(self, message)
        self.status_code, self.message, self.phrase = status_code, message, message


def model_fn(model_dir: str) -> Loaded:
    """Called once, when the container starts."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = AutoModelForSequenceClassification.from_pretrained(model_dir).to(device).eval()
    return AutoTokenizer.from_pretrained(model_dir), model


def input_fn(body: str, content_type: str) -> list[str]:
    """The texts of a request.

    Raises:
        RequestError: the body is not in a form of the module's description.
    """
    if content_type != "application/json":
        raise RequestError(415, f"Content type {content_type} is not supported. Supported types: application/json.")
    try:
        inputs = json.loads(body)
    except ValueError as error:
        raise RequestError(400, f"the body is not JSON: {error}") from error
    inputs = inputs.get("inputs") if isinstance(inputs, dict) else inputs
    texts = [inputs] if isinstance(inputs, str) else inputs
    if not isinstance(texts, list) or not texts or not all(isinstance(one, str) for one in texts):
        raise RequestError(400, "the body contains no texts: send a list of them")
    return texts


@torch.no_grad()
def predict_fn(texts: list[str], loaded: Loaded) -> list[dict]:
    """The most probable label of each text, and its probability. The texts are computed 100 at a time."""
    tokenizer, model = loaded
    answers = []
    for start in range(0, len(texts), 100):
        batch = tokenizer(texts[start : start + 100], truncation=True, padding=True, return_tensors="pt")
        batch.pop("token_type_ids", None)  # BERT takes zeros by itself, other models have none
        scores, labels = torch.softmax(model(**batch.to(model.device)).logits, dim=1).max(1)
        names = [model.config.id2label[one] for one in labels.tolist()]
        answers += [{"label": name, "score": score} for name, score in zip(names, scores.tolist())]
    return answers


def output_fn(answers: list[dict], accept: str) -> tuple[str, str]:
    """The answer and its content type, which is JSON whatever the client accepts."""
    return json.dumps(answers), "application/json"
