"""Answers requests with the model of mnist_tf2.py or mnist_keras.py: images of digits in, their labels and the
probabilities out.

TensorFlow's serving container loads the SavedModel in the folder ``1`` of the model and calls these two functions. It
requires the name ``inference.py``. A request is a file in the IDX format as the data of the training
(``application/octet-stream``), or a list of images, each 28 rows of 28 numbers from 0 to 255 (``application/json``).
"""

import json
import struct

SIDE = 28
IDX_IMAGES = 0x803
TYPES = ("application/octet-stream", "application/json")


class RequestError(ValueError):
    """An answer with this status. AWS's container answers 500 to every exception."""

    def __init__(self, status_code: int, message: str) -> None:
        super().__init__(message)
        self.status_code = status_code


def input_handler(data, context) -> str:
    """The request for the SavedModel, which takes images of bytes.

    Args:
        data: the body, a file open for reading.
        context: has the request's content type.

    Raises:
        RequestError: the body is not in a form of the module's description.
    """
    body, content_type = data.read(), context.request_content_type.partition(";")[0].strip().lower()
    if content_type == "application/json":
        try:
            images = json.loads(body)
        except ValueError as error:
            raise RequestError(400, f"the body is not JSON: {error}") from error
    elif content_type == "application/octet-stream":
        images = images_of(body)
    else:
        raise RequestError(415, f"Content type {content_type} is not supported. Supported types: {', '.join(TYPES)}.")
    return json.dumps({"instances": images})


def images_of(body: bytes) -> list:
    """The images of an IDX file, each as 28 rows of 28 numbers.

    Raises:
        RequestError: the file is another one.
    """
    header = struct.unpack(">IIII", body[:16]) if len(body) >= 16 else (0, 0, 0, 0)
    if header != (IDX_IMAGES, header[1], SIDE, SIDE) or len(body) != 16 + header[1] * SIDE * SIDE:
        raise RequestError(400, "the body is no IDX file with images of 28 x 28 bytes")
    rows = [list(body[start : start + SIDE]) for start in range(16, len(body), SIDE)]
    return [rows[start : start + SIDE] for start in range(0, len(rows), SIDE)]


def output_handler(response, context) -> tuple:
    """The answer and its content type.

    Args:
        response: the SavedModel's answer, as one of the library requests.

    Raises:
        RequestError: the SavedModel refuses the images.
    """
    if response.status_code != 200:
        raise RequestError(response.status_code, response.content.decode())
    predictions = json.loads(response.content)["predictions"]
    answer = {
        "labels": [one["label"] for one in predictions],
        "probabilities": [round(one["probability"], 4) for one in predictions],
    }
    return json.dumps(answer), "application/json"
