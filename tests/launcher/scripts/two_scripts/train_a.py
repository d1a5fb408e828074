import argparse

import torch

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--width-a", type=int, default=8)
    torch.nn.Linear(parser.parse_args().width_a, 1)
