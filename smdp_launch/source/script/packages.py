"""Packages with known effects in a training script."""

from __future__ import annotations

import sys

#: Packages that start no process group, wrap no model and create no data loader unless the script calls them by name.
PLAIN = frozenset(
    {
        *sys.stdlib_module_names,
        *("torch", "torchvision", "torchaudio", "torchtext", "torchmetrics", "torchinfo", "torchsummary"),
        *("torchdata", "tensorflow", "keras", "tensorboard", "tensorboardX", "tensorflow_datasets"),
        *("tensorflow_addons", "numpy", "scipy", "pandas", "pyarrow", "sklearn", "skimage", "PIL", "cv2"),
        *("matplotlib", "seaborn", "imageio", "networkx", "numba", "einops", "h5py", "lmdb", "nltk", "spacy"),
        *("sentencepiece", "tokenizers", "tiktoken", "transformers", "datasets", "evaluate", "huggingface_hub"),
        *("safetensors", "peft", "albumentations", "kornia", "pycocotools", "apex", "horovod", "smdistributed"),
        *("smdp_engine", "smdebug", "sagemaker", "sagemaker_training", "boto3", "botocore", "s3fs", "fsspec"),
        *("requests", "wandb", "mlflow", "tqdm", "yaml", "toml", "rich", "psutil", "joblib", "click", "absl"),
        *("termcolor", "colorama", "six", "packaging", "dill", "regex", "gym", "gymnasium", "attr", "pydantic"),
        *("typing_extensions", "plotly", "prettytable", "tabulate", "loguru"),
    }
)
