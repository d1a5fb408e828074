"""The data and the model of detection.py and detection_inference.py: images with masks, and a Mask R-CNN."""

import json
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset
from torchvision.io import ImageReadMode, decode_image
from torchvision.models.detection import MaskRCNN, maskrcnn_resnet50_fpn
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.ops import MultiScaleRoIAlign, box_iou, masks_to_boxes

LABELS = {1: "disc", 2: "square", 3: "triangle"}
#: An answer counts from this score on, and finds an object from this overlap of the boxes on.
SCORE, OVERLAP = 0.5, 0.5


class Shapes(Dataset):
    """The images of a channel as (3, H, W) floats from 0 to 1, and the boxes, labels and masks of their objects."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.labels = json.loads((folder / "labels.json").read_text(encoding="utf-8"))
        self.names = sorted(self.labels)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        name = self.names[index]
        numbers = decode_image(str(self.folder / "masks" / f"{name}.png"), ImageReadMode.GRAY)
        masks = numbers == torch.arange(1, len(self.labels[name]) + 1)[:, None, None]
        boxes = masks_to_boxes(masks)
        boxes[:, 2:] += 1  # the right and lower edge of the last pixel
        target = {"boxes": boxes, "labels": torch.tensor(self.labels[name]), "masks": masks.to(torch.uint8)}
        return read_image((self.folder / "images" / f"{name}.png").read_bytes()), target


def read_image(data: bytes) -> torch.Tensor:
    """A PNG or JPEG file as (3, H, W) floats from 0 to 1."""
    return decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB) / 255


def make_model(name: str, side: int) -> MaskRCNN:
    """A Mask R-CNN with random weights.

    Args:
        name: ``resnet50`` is torchvision's, with 44 million parameters. ``small`` has the same parts, with one feature
            map of a quarter of the image's side and 1 million parameters; it trains on a CPU in minutes.
        side: images are scaled to this number of pixels.
    """
    classes, sizes = len(LABELS) + 1, {"min_size": side, "max_size": side}
    if name == "resnet50":
        return maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=classes, **sizes)
    strides = [(3, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 64, 1), (64, 64, 1)]
    backbone = nn.Sequential(*(_block(*one) for one in strides))
    backbone.out_channels = 64
    return MaskRCNN(
        backbone,
        rpn_anchor_generator=AnchorGenerator(((16, 24),), ((1.0,),)),
        rpn_pre_nms_top_n_train=200,
        rpn_post_nms_top_n_train=100,
        rpn_pre_nms_top_n_test=100,
        rpn_post_nms_top_n_test=50,
        box_batch_size_per_image=64,
        box_roi_pool=MultiScaleRoIAlign(["0"], 7, 2),
        box_head=TwoMLPHead(64 * 7 * 7, 128),
        box_predictor=FastRCNNPredictor(128, classes),
        mask_roi_pool=MultiScaleRoIAlign(["0"], 14, 2),
        mask_head=MaskRCNNHeads(64, (64, 64), 1),
        mask_predictor=MaskRCNNPredictor(64, 64, classes),
        **sizes,
    )


def layers_of(model: MaskRCNN) -> list[nn.Module]:
    """All layers with weights, in parts that compute no boxes."""
    heads = model.roi_heads
    layers = [heads.box_head, heads.box_predictor, heads.mask_head, heads.mask_predictor]
    return [model.backbone, model.rpn.head, *layers]


def _block(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


@torch.no_grad()
def detect(model: MaskRCNN, image: torch.Tensor) -> dict[str, torch.Tensor]:
    """Boxes (N, 4) in pixels as left, top, right, bottom; labels (N,), scores (N,) and masks (N, H, W)."""
    (answer,) = model([image.to(next(model.parameters()).device)])
    kept = answer["scores"] >= SCORE
    found = {key: value[kept].cpu() for key, value in answer.items()}
    return {**found, "masks": found["masks"][:, 0] >= 0.5}


def count_found(boxes: torch.Tensor, labels: torch.Tensor, target: dict[str, torch.Tensor]) -> int:
    """How many objects of an image are found: a box with the same label overlaps theirs."""
    if not len(boxes):
        return 0
    overlaps = box_iou(target["boxes"], boxes) * (target["labels"][:, None] == labels[None])
    return int((overlaps.max(1).values >= OVERLAP).sum())
