import argparse

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--arch", required=True)
arguments = parser.parse_args()
