import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
parser.add_argument("--betas", type=float, nargs=2)
arguments = parser.parse_args()
