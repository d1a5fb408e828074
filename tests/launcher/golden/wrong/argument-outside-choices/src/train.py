import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
parser.add_argument("--layers", choices=[18, 50], default=18)
arguments = parser.parse_args()
