import numpy
import torch
from smdp_engine import progress
from transformers import AutoModel


def model_fn(model_dir):
    return AutoModel.from_pretrained(model_dir)
