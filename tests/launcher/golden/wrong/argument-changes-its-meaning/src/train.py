import argparse
import json

parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
parser.add_argument("--augment", type=bool, default=True)
parser.add_argument("--config", type=json.loads, default={"depth": 2})
parser.add_argument("--layers", type=json.loads, default=[])
print(parser.parse_known_args())
