import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--learning-rate", type=float, default=0.1)
parser.add_argument("-wd", type=float, default=0.0)
arguments = parser.parse_args()
