import argparse

parser = argparse.ArgumentParser()
group = parser.add_mutually_exclusive_group()
group.add_argument("--epochs", type=int)
group.add_argument("--steps", type=int)
parser.add_argument("--learning-rate", type=float, default=0.1)
parser.add_argument("--learning-decay", type=float, default=0.9)
print(parser.parse_args())
