"""The plain loop: PyTorch with autograd as a researcher would write it, and nothing of ours.

Nets are torch's layers one by one, the step is ``torch.optim.SGD``'s, windows are normalised once
and lie in memory as one tensor, a batch is some of its rows (no ``DataLoader``, whose workers and
collating would take longer), one room learns after the other on one thread.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks._work import BATCH, CLASSES, WIDTH, Work, batches, read_room
from fedapa.randomness import Key

__all__ = ["Data", "Net", "fedapa_rounds", "hybrid_loss", "score", "train"]

CHANNELS = {"tiny": (WIDTH,), "middle": (16, 32), "large": (16, 32, 64, 128, 256)}
HIDDEN, TEMPERATURE = 256, 0.5


class Net(nn.Module):
    """Windows → logits and embeddings."""

    def __init__(self, kind: str, shape: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if kind == "mlp":
            layers += [nn.Linear(shape[0], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH), nn.ReLU()]
        else:
            layers.append(nn.Unflatten(1, (1, shape[0])))
            given = 1
            for made in CHANNELS[kind]:
                layers.append(nn.Conv2d(given, made, 3, stride=2, padding=1, bias=False))
                layers += [nn.BatchNorm2d(made), nn.ReLU()]
                given = made
            layers.append(nn.AdaptiveAvgPool2d(1))
            if kind != "tiny":
                layers.append(nn.Conv2d(given, WIDTH, 1))
            layers.append(nn.Flatten())
        self.encoder = nn.Sequential(*layers)
        self.classifier = nn.Linear(WIDTH, CLASSES)

    def forward(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, C] and embeddings [B, D]."""
        embedding = self.encoder(windows)
        return self.classifier(embedding), embedding


class Data:
    """The windows of a room in memory, normalised."""

    def __init__(self, folder: Path, number: int, train: int) -> None:
        windows, labels = read_room(folder, number)
        made = torch.from_numpy(windows.copy())
        mean, deviation = made[:train].mean(dim=0), made[:train].std(dim=0)
        made = (made - mean) / (deviation + 1e-6)
        self.train, self.test = made[:train], made[train:]
        self.train_labels = torch.from_numpy(labels[:train])
        self.test_labels = torch.from_numpy(labels[train:])


Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Of logits, embeddings and labels."""


def train(net: Net, data: Data, loss_of: Loss, order: Tensor) -> None:
    """One epoch."""
    net.train()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5, weight_decay=1e-5)
    for some in order.split(batches(len(order))):
        logits, embedding = net(data.train[some])
        loss = loss_of(logits, embedding, data.train_labels[some])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


@torch.no_grad()
def score(net: Net, data: Data) -> float:
    """The share of test windows that are told right."""
    net.eval()
    right = 0
    for windows, labels in zip(data.test.split(BATCH), data.test_labels.split(BATCH), strict=True):
        right += int((net(windows)[0].argmax(dim=1) == labels).sum())
    return right / len(data.test)


def hybrid_loss(mixture: Tensor, sets: Tensor) -> Loss:
    """L_ce + L_g + L_c with a room's mixture [C, D] and everybody's sets [N, C, D]."""
    to_mixture, to_sets = F.normalize(mixture, dim=-1), F.normalize(sets, dim=-1)
    among = to_sets.flatten(0, 1)  # (N · C, D)

    def loss_of(logits: Tensor, embedding: Tensor, labels: Tensor) -> Tensor:
        direction = F.normalize(embedding, dim=-1)
        global_contrast = F.cross_entropy(direction @ to_mixture.T / TEMPERATURE, labels)
        cosines = direction @ among.T / TEMPERATURE  # (B, N · C)
        local_contrast = F.cross_entropy(
            cosines.view(-1, CLASSES), labels.repeat_interleave(len(sets))
        )
        return F.cross_entropy(logits, labels) + global_contrast + local_contrast

    return loss_of


@torch.no_grad()
def prototypes(net: Net, data: Data) -> Tensor:
    """The mean embedding of each class, [C, D]."""
    net.eval()
    embeddings = torch.cat([net(windows)[1] for windows in data.train.split(BATCH)])
    sums = torch.zeros(CLASSES, WIDTH).index_add_(0, data.train_labels, embeddings)
    return sums / torch.bincount(data.train_labels, minlength=CLASSES)[:, None]


def mixed(sets: Tensor) -> Tensor:
    """Each room's mixture of everybody's sets, class by class, by their cosines: [N, C, D]."""
    directions = F.normalize(sets, dim=-1).transpose(0, 1)  # (C, N, D)
    weights = (directions @ directions.transpose(1, 2) / TEMPERATURE).softmax(dim=-1)
    return (weights @ sets.transpose(0, 1)).transpose(0, 1)


def fedapa_rounds(work: Work, folder: Path) -> Iterator[None]:
    """Round after round of all rooms: score, train, prototypes, mixtures."""
    with (Key(0) / "eager").as_torch_default():
        nets = [Net(work.net, work.shape) for _ in range(work.rooms)]
    rooms = [Data(folder, number, work.train) for number in range(work.rooms)]
    sets = torch.stack([prototypes(net, data) for net, data in zip(nets, rooms, strict=True)])
    mixtures = mixed(sets)
    stream = Key(0).torch()
    while True:
        made = []
        for number, (net, data) in enumerate(zip(nets, rooms, strict=True)):
            score(net, data)
            order = torch.randperm(work.train, generator=stream)
            train(net, data, hybrid_loss(mixtures[number], sets), order)
            made.append(prototypes(net, data))
        sets = torch.stack(made)
        mixtures = mixed(sets)
        yield
