"""Trains a small convolutional network on MNIST digits with TensorFlow 2, a loop of its own and a gradient tape.

It imports SageMaker's data parallel library by its own name, reads its data from the channels, and writes its model, a
SavedModel for TensorFlow Serving, and its checkpoints to SageMaker's folders. TensorFlow computes on the GPU that it
sees: each worker sees the GPU of its local rank. ``--precision fp16`` or ``bf16``, or the key ``amp`` of the job file,
turns mixed precision on. It also runs alone:
``python mnist_tf2.py --train FOLDER --test FOLDER --model-dir FOLDER``.
"""

import argparse
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from smdp_engine import progress

POLICIES = {"fp32": "float32", "fp16": "mixed_float16", "bf16": "mixed_bfloat16"}
MEAN, DEVIATION = 0.1307, 0.3081  # of MNIST's pixels from 0 to 1


def parse_arguments() -> argparse.Namespace:
    environ = os.environ.get
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=128, help="digits in one step, on all workers together")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--precision", choices=POLICIES, default=environ("SMDP_AMP", "fp32"), help="fp16 and bf16: mixed precision"
    )
    parser.add_argument("--steps", type=int, default=0, help="stop after this number of steps; 0 for all epochs")
    parser.add_argument("--train", type=Path, default=environ("SM_CHANNEL_TRAIN"))
    parser.add_argument("--test", type=Path, default=environ("SM_CHANNEL_TEST"))
    parser.add_argument("--model-dir", type=Path, default=environ("SM_MODEL_DIR"))
    parser.add_argument("--checkpoint-dir", type=Path, default=environ("SMDP_CHECKPOINT_DIR"))
    parser.add_argument("--checkpoint-every", type=int, default=100, help="steps between two checkpoints")
    arguments = parser.parse_args()
    for name in ("train", "test", "model_dir"):
        if getattr(arguments, name) is None:
            parser.error(f"--{name.replace('_', '-')} is required outside a training job")
    return arguments


def join_job(batch_size: int):
    """The library (None for a single process), this worker's rank, and the number of workers."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if batch_size % world_size:
        raise ValueError(f"--batch-size {batch_size} does not divide equally among {world_size} workers")
    if world_size == 1:
        return None, 0, 1
    import smdistributed.dataparallel.tensorflow as sdp

    sdp.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        # Workers share GPUs if the host has fewer GPUs than workers; by default one would take all of the memory.
        mine = gpus[sdp.local_rank() % len(gpus)]
        tf.config.set_visible_devices(mine, "GPU")
        tf.config.experimental.set_memory_growth(mine, True)
    return sdp, sdp.rank(), world_size


def read_channel(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images as (N, 28, 28, 1) floats around zero, and labels as (N,)."""
    images = (folder / "images.idx3").read_bytes()
    labels = (folder / "labels.idx1").read_bytes()
    magic, count, height, width = struct.unpack(">IIII", images[:16])
    if magic != 0x803 or len(images) != 16 + count * height * width or len(labels) != 8 + count:
        raise ValueError(f"{folder} does not contain images.idx3 and labels.idx1 of the same digits")
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(count, height, width, 1)
    return (pixels.astype(np.float32) / 255 - MEAN) / DEVIATION, np.frombuffer(labels, np.uint8, offset=8).astype(int)


def make_model(seed: int, precision: str) -> tf.keras.Model:
    tf.keras.mixed_precision.set_global_policy(POLICIES[precision])
    tf.keras.utils.set_random_seed(seed)
    # Activations are smooth, so a rounding difference in a sum cannot switch a unit on or off. Runs with different
    # numbers of workers therefore differ only by rounding.
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer((28, 28, 1)),
            tf.keras.layers.Conv2D(16, 5, strides=2, padding="same", activation="tanh"),
            tf.keras.layers.Conv2D(32, 5, strides=2, padding="same", activation="tanh"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="tanh"),
            tf.keras.layers.Dense(10, dtype="float32"),  # the loss needs all digits of the scores
        ]
    )


def make_optimizer(lr: float, precision: str) -> tf.keras.optimizers.Optimizer:
    """In fp16 it scales the loss, which keeps small gradients from becoming zero."""
    optimizer = tf.keras.optimizers.SGD(lr, momentum=0.9)
    return tf.keras.mixed_precision.LossScaleOptimizer(optimizer) if precision == "fp16" else optimizer


def batches(count: int, batch_size: int, epochs: int, seed: int) -> Iterator[np.ndarray]:
    """The indices of each global batch, the same on every worker and for every number of workers."""
    for epoch in range(epochs):
        order = np.random.default_rng(seed + epoch).permutation(count)
        for start in range(0, count - batch_size + 1, batch_size):
            yield order[start : start + batch_size]


def train(arguments: argparse.Namespace, model: tf.keras.Model, sdp, rank: int, world_size: int) -> None:
    images, labels = read_channel(arguments.train)
    total = arguments.epochs * (len(images) // arguments.batch_size)
    total = min(total, arguments.steps) if arguments.steps else total
    optimizer = make_optimizer(arguments.lr, arguments.precision)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    done = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, step=done)
    saved = tf.train.CheckpointManager(checkpoint, arguments.checkpoint_dir, 2) if arguments.checkpoint_dir else None
    if saved and saved.latest_checkpoint:
        checkpoint.restore(saved.latest_checkpoint)
        print(f"continues after step {done.numpy()}")

    # Keras 3's optimizer divides the gradients by its scale itself.
    scale = getattr(optimizer, "get_scaled_loss", None) or getattr(optimizer, "scale_loss", None) or (lambda loss: loss)
    unscale = getattr(optimizer, "get_unscaled_gradients", None) or (lambda gradients: gradients)

    @tf.function
    def train_step(images, labels, is_first):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
            scaled = scale(loss)
        if sdp:
            tape = sdp.DistributedGradientTape(tape)
        gradients = unscale(tape.gradient(scaled, model.trainable_variables))
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        if sdp and is_first:
            sdp.broadcast_variables(model.variables, root_rank=0)
            variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
            sdp.broadcast_variables(variables, root_rank=0)
        return sdp.oob_allreduce(loss) if sdp else loss

    first = int(done.numpy()) + 1
    for step, batch in enumerate(batches(len(images), arguments.batch_size, arguments.epochs, arguments.seed), 1):
        if step > total:
            break
        if step < first:
            continue
        mine = np.array_split(batch, world_size)[rank]
        loss = train_step(tf.constant(images[mine]), tf.constant(labels[mine]), step == first)
        done.assign(step)
        progress.step(step, total, loss=float(loss))
        if rank == 0 and saved and (step % arguments.checkpoint_every == 0 or step == total):
            saved.save(step)


def evaluate(model: tf.keras.Model, folder: Path) -> None:
    """Print the share of a channel's digits that the model recognizes."""
    images, labels = read_channel(folder)
    share = float(np.mean(np.argmax(model(images).numpy(), axis=1) == labels))
    print(f"accuracy {share:.3f} on {len(labels)} digits that are not in the training channel")
    progress.emit("result", accuracy=share, digits=len(labels))


class Served(tf.Module):
    """What the endpoint computes: the model, with the preparation of the pixels before it."""

    def __init__(self, model: tf.keras.Model) -> None:
        super().__init__()
        self.model = model

    @tf.function(input_signature=[tf.TensorSpec((None, 28, 28), tf.uint8, name="images")])
    def predict(self, images: tf.Tensor) -> dict:
        """The most probable label of each image of bytes, and its probability."""
        pixels = (tf.cast(images[..., tf.newaxis], tf.float32) / 255 - MEAN) / DEVIATION
        scores = tf.nn.softmax(self.model(pixels, training=False))
        return {"label": tf.argmax(scores, axis=1), "probability": tf.reduce_max(scores, axis=1)}


def save(model: tf.keras.Model, folder: Path) -> None:
    """A SavedModel in the folder ``1``: TensorFlow Serving loads models from folders whose names are their versions."""
    served = Served(model)
    tf.saved_model.save(served, str(folder / "1"), signatures=served.predict)


def main() -> None:
    arguments = parse_arguments()
    sdp, rank, world_size = join_job(arguments.batch_size)
    model = make_model(arguments.seed, arguments.precision)
    train(arguments, model, sdp, rank, world_size)
    if rank == 0:
        evaluate(model, arguments.test)
        save(model, arguments.model_dir)


if __name__ == "__main__":
    main()
