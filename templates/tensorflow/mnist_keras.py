"""Trains the network of mnist_tf2.py with ``model.fit`` of Keras 2 or 3, on TensorFlow.

An ordinary Keras script with three additions for several workers: an optimizer that averages gradients, a callback that
broadcasts the initial variables, and each worker's share of the data. It also runs alone:
``python mnist_keras.py --train FOLDER --test FOLDER --model-dir FOLDER``.
"""

import numpy as np
import tensorflow as tf
from mnist_tf2 import batches, evaluate, join_job, make_model, make_optimizer, parse_arguments, read_channel, save

from smdp_engine import progress


class Progress(tf.keras.callbacks.Callback):
    """Reports each step's loss, averaged over all workers, as a progress event."""

    def __init__(self, total, average):
        super().__init__()
        self._total = total
        self._average = average
        self._step = 0

    def on_epoch_begin(self, epoch, logs=None):
        self._sum = 0.0
        self._in_epoch = 0

    def on_train_batch_end(self, batch, logs=None):
        self._step += 1
        self._in_epoch += 1
        loss = logs["loss"] * self._in_epoch - self._sum  # Keras gives the epoch's mean
        self._sum += loss
        progress.step(self._step, self._total, loss=float(self._average(loss)))


def main():
    arguments = parse_arguments()
    sdp, rank, world_size = join_job(arguments.batch_size)
    average, callbacks = float, []
    optimizer = make_optimizer(arguments.lr, arguments.precision)
    if sdp:
        optimizer = sdp.DistributedOptimizer(optimizer)
        callbacks.append(sdp.BroadcastVariablesCallback(root_rank=0))
        average = sdp.oob_allreduce

    images, labels = read_channel(arguments.train)
    steps = arguments.steps or len(images) // arguments.batch_size
    epochs = 1 if arguments.steps else arguments.epochs

    def share():
        for batch in batches(len(images), arguments.batch_size, arguments.epochs, arguments.seed):
            mine = np.array_split(batch, world_size)[rank]
            yield images[mine], labels[mine]

    form = (tf.TensorSpec((None, 28, 28, 1), tf.float32), tf.TensorSpec((None,), tf.int64))
    model = make_model(arguments.seed, arguments.precision)
    model.compile(optimizer=optimizer, loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(
        tf.data.Dataset.from_generator(share, output_signature=form),
        epochs=epochs,
        steps_per_epoch=steps,
        verbose=0,
        callbacks=[*callbacks, Progress(epochs * steps, average)],
    )
    if rank == 0:
        evaluate(model, arguments.test)
        save(model, arguments.model_dir)
        model.save(str(arguments.model_dir / "model.keras"))  # to train it again


if __name__ == "__main__":
    main()
