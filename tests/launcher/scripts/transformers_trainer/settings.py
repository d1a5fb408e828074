import argparse
import os

VERSION = "1.10"


def parser():
    made = argparse.ArgumentParser()
    made.add_argument("--model_name", default="distilbert-base-uncased", help="100% of the weights: a hub's name")
    made.add_argument("--revision", default=VERSION)
    made.add_argument("--epochs", type=int, default=3)
    made.add_argument("--learning_rate", type=float, default=5e-5)
    made.add_argument("--warmup", type=int)
    made.add_argument("--labels", nargs="+", default=["no", "yes"])
    made.add_argument("--fp16", type=bool, default=False)
    made.add_argument("--train_dir", default=os.environ["SM_CHANNEL_TRAIN"])
    made.add_argument("--eval_dir", default=os.environ["SM_CHANNEL_EVAL"])
    return made
