import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--bias", type=float, default=0.0)
parser.add_argument("--offsets", default="0,0")
print(parser.parse_args())
