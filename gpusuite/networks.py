"""The networks of the suite in plain torch: images without torchvision run them too."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


def teacher_student(width: int = 256) -> tuple[Any, Any]:
    """Return a fixed network and one that learns to compute the same."""

    def network() -> Any:
        return nn.Sequential(nn.Linear(64, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 8))

    return network(), network()


class Bottleneck(nn.Module):
    """A residual block of ResNet-50: 1x1, 3x3 and 1x1 convolutions."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            *_convolution(inputs, width, 1, 1),
            nn.ReLU(inplace=True),
            *_convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *_convolution(width, outputs, 1, 1),
        )
        # An untrained block of weight 1 doubles the variance: after 16 of them fp16 would overflow.
        nn.init.constant_(self.body[-1].weight, 0.2)
        same = stride == 1 and inputs == outputs
        self.skip = nn.Identity() if same else nn.Sequential(*_convolution(inputs, outputs, 1, stride))

    def forward(self, value: Any) -> Any:
        """Return the block's output."""
        return functional.relu(self.body(value) + self.skip(value))


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> list[Any]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return [convolution, nn.BatchNorm2d(outputs)]


def resnet50() -> Any:
    """ResNet-50 (He et al. 2015, with the stride in the 3x3 convolution), untrained."""
    layers = [*_convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if number == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class EncoderLayer(nn.Module):
    """A transformer layer with normalisation before attention and before the feed-forward part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.forth, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, value: Any) -> Any:
        """Return the layer's output for (batch, tokens, width)."""
        batch, tokens, width = value.shape
        mixed = self.mixed(self.norms[0](value)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, content = mixed.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, content)
        value = value + self.out(attended.transpose(1, 2).reshape(batch, tokens, width))
        return value + self.back(functional.gelu(self.forth(self.norms[1](value))))


def transformer(layers: int = 12, width: int = 768, heads: int = 12) -> Any:
    """An encoder of the shape of BERT base: (batch, tokens, 768) in, the same shape out."""
    return nn.Sequential(*(EncoderLayer(width, heads) for _ in range(layers)), nn.LayerNorm(width))


def seeded(seed: int) -> None:
    """Set the seed of torch's generators of all devices."""
    torch.manual_seed(seed)
