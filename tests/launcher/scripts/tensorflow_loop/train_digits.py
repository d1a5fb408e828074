"""A custom TensorFlow loop that averages its gradients with AWS's library."""

import argparse
import os

import smdistributed.dataparallel.tensorflow as sdp
import tensorflow as tf


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning_rate", type=float, default=1e-5, help="of one worker")
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--activation", type=str, default="on")
    parser.add_argument("--data", default=os.environ.get("SM_CHANNEL_TRAINING"))
    parser.add_argument("--model_dir")
    parser.add_argument("--xla", action="store_true")
    return parser.parse_args()


def step(model, tape, loss, optimizer):
    tape = sdp.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))


def main():
    options = arguments()
    sdp.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[sdp.local_rank()], "GPU")
    data = tf.data.Dataset.list_files(options.data + "/*").shard(sdp.size(), sdp.rank())
    model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
    optimizer = tf.keras.optimizers.Adam(options.learning_rate * sdp.size())
    for batch in data.batch(options.batch_size):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(batch))
        step(model, tape, loss, optimizer)
    if sdp.rank() == 0:
        model.save("/opt/ml/model/1")


if __name__ == "__main__":
    main()
