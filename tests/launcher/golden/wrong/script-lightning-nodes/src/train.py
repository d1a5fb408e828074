import argparse

import lightning

parser = argparse.ArgumentParser()
parser.add_argument("--num_nodes", type=int, default=1)
arguments = parser.parse_args()
trainer = lightning.Trainer(num_nodes=arguments.num_nodes)
