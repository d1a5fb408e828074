import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--warmup", type=int, default=0)
parser.add_argument("--rate", type=float, default=0.1)
arguments = parser.parse_args()
