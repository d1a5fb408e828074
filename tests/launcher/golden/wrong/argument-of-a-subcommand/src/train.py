import argparse

parser = argparse.ArgumentParser()
commands = parser.add_subparsers()
train = commands.add_parser("train")
train.add_argument("--epochs", type=int)
print(parser.parse_args())
