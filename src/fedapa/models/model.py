"""Model: what every net here is, an encoder (windows → embedding) and a classifier (→ logits)."""

import torch
from torch import Tensor, nn

__all__ = ["Model", "unit"]

SHORTEST = 1e-8
"""A vector below this length has no direction."""


def unit(vectors: Tensor) -> Tensor:
    """Vectors [..., D] scaled to length one; one without a direction becomes zero.

    Such a vector is then at cosine 0 to everything and gets no gradient, where dividing by a
    tiny epsilon would give it an enormous one.
    """
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / torch.where(length > SHORTEST, length, torch.inf)


class Model(nn.Module):
    """An encoder θ and a linear classifier h; ``forward`` returns logits and embedding.

    Parameters come in the order of the layers: the encoder's, then the classifier's.
    """

    architecture: str
    """The name a plan calls this net by."""

    def __init__(
        self, encoder: nn.Module, *, classes: int, width: int, normalise_embedding: bool = False
    ) -> None:
        super().__init__()
        self.classes = classes
        self.width = width
        self.normalise_embedding = normalise_embedding
        self.encoder = encoder
        self.classifier = nn.Linear(width, classes)

    def embed(self, windows: Tensor) -> Tensor:
        """The embedding r [B, width] of a batch of windows."""
        embedding: Tensor = self.encoder(windows)
        return unit(embedding) if self.normalise_embedding else embedding

    def forward(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, classes] and embedding [B, width]."""
        embedding = self.embed(windows)
        return self.classifier(embedding), embedding

    def predict(self, windows: Tensor) -> Tensor:
        """The most likely class [B] of each window, as this net sees it."""
        logits, _ = self(windows)
        return torch.argmax(logits, dim=1)
