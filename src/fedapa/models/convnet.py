"""Tiny-, Middle- and LargeConvNet4 as the paper's architecture table draws them.

Blocks of Conv2d 3×3 (stride 2, padding 1, no bias) → BatchNorm2d → ReLU, a global mean, and a 1×1
convolution (with bias) to the feature width; Tiny has one block as wide as the embedding and no
head. At 20 classes and width 256 that is 7,956 / 18,436 / 463,748 parameters. Any window size.
"""

from collections import OrderedDict

from torch import Tensor, nn

from fedapa.models import fast
from fedapa.models.model import Model

__all__ = ["ConvEncoder", "LargeConvNet4", "MiddleConvNet4", "TinyConvNet4"]


class ConvEncoder(nn.Sequential):
    """Windows [B, packets, links · subcarriers] → embeddings [B, width].

    Each link is a channel of the first convolution. Images [B, links, packets, subcarriers] are
    taken as they are.
    """

    def __init__(self, channels: tuple[int, ...], width: int | None, links: int = 1) -> None:
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for number, (fed, made) in enumerate(
            zip((links, *channels[:-1]), channels, strict=True), start=1
        ):
            layers[f"block{number}"] = nn.Sequential(
                OrderedDict(
                    conv=nn.Conv2d(fed, made, kernel_size=3, stride=2, padding=1, bias=False),
                    norm=nn.BatchNorm2d(made),
                    relu=nn.ReLU(),
                )
            )
        layers["pool"] = nn.AdaptiveAvgPool2d(1)
        if width is not None:
            layers["head"] = nn.Conv2d(channels[-1], width, kernel_size=1)
        layers["flatten"] = nn.Flatten()
        super().__init__(layers)
        self.links = links

    @property
    def blocks(self) -> list[nn.Module]:
        """The blocks in the order in which a window passes them."""
        return [child for name, child in self.named_children() if name.startswith("block")]

    def forward(self, windows: Tensor) -> Tensor:
        """Embeddings of a batch, the fast way where there is one."""
        images = windows
        if windows.dim() == 3:  # (B, links, packets, subcarriers)
            batch, packets, columns = windows.shape
            sides = batch, packets, self.links, columns // self.links
            images = windows.reshape(sides).movedim(2, 1)
        return fast.encode(self, images) if fast.fits(self, images) else self.plain(images)

    def plain(self, images: Tensor) -> Tensor:
        """Embeddings layer by layer, as torch does it: what the fast path is measured against."""
        embedding: Tensor = super().forward(images)  # type: ignore[no-untyped-call]
        return embedding


class TinyConvNet4(Model):
    """One block, 256 channels: the fewest parameters, and one very wide activation."""

    architecture = "tiny"

    def __init__(
        self,
        classes: int = 21,
        width: int = 256,
        *,
        normalise_embedding: bool = False,
        links: int = 1,
    ) -> None:
        super().__init__(
            ConvEncoder((width,), None, links),
            classes=classes,
            width=width,
            normalise_embedding=normalise_embedding,
        )


class MiddleConvNet4(Model):
    """Two blocks, 16 and 32 channels, and a head: the cheapest to run."""

    architecture = "middle"

    def __init__(
        self,
        classes: int = 21,
        width: int = 256,
        *,
        normalise_embedding: bool = False,
        links: int = 1,
    ) -> None:
        super().__init__(
            ConvEncoder((16, 32), width, links),
            classes=classes,
            width=width,
            normalise_embedding=normalise_embedding,
        )


class LargeConvNet4(Model):
    """Five blocks, 16 to 256 channels, and a head: the paper's default."""

    architecture = "large"

    def __init__(
        self,
        classes: int = 21,
        width: int = 256,
        *,
        normalise_embedding: bool = False,
        links: int = 1,
    ) -> None:
        super().__init__(
            ConvEncoder((16, 32, 64, 128, 256), width, links),
            classes=classes,
            width=width,
            normalise_embedding=normalise_embedding,
        )
