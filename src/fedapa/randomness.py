"""Every random stream, named by what it is for; the only file that touches generators.

A ``Key`` is a path of words such as ``Key(0) / "round" / 3 / "room" / "bus" / "batches"``. Streams
of different paths are independent, the same path gives the same stream on every machine and in
every process, and nobody's draw moves anybody else's: that is why results do not depend on the
number of workers or on the order in which rooms are served.

Every room knows the plan's seed, and so every stream of the run, the server's and the other rooms'
too. They make runs repeatable; nothing secret may hang on them. A secret (a password, a mask, the
noise of differential privacy) needs the operating system's randomness (``secrets``), not a ``Key``:
``SystemNoise`` is that.
"""

import contextlib
import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

__all__ = ["Key", "Noise", "SystemNoise"]

_BITS = 53
"""Of a float64's mantissa: what a uniform number has."""


@dataclass(frozen=True)
class Key:
    """The name of a random stream: a seed and a path of words."""

    seed: int
    path: tuple[str | int, ...] = ()

    def __truediv__(self, word: str | int) -> "Key":
        return Key(self.seed, (*self.path, word))

    @property
    def number(self) -> int:
        """128 bits that depend on the seed and on every word of the path."""
        # repr keeps 3 and "3" apart, the tuple's commas keep ("ab",) and ("a", "b") apart.
        text = repr((self.seed, *self.path)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little")

    def numpy(self) -> np.random.Generator:
        """A numpy generator at the start of this stream."""
        return np.random.Generator(np.random.PCG64(self.number))

    def torch(self) -> "torch.Generator":
        """A torch CPU generator at the start of this stream."""
        import torch

        return torch.Generator().manual_seed(self.number & (2**63 - 1))

    @contextlib.contextmanager
    def as_torch_default(self) -> Iterator[None]:
        """Run a block, e.g. the construction of a net, on this stream; the global one is restored.

        torch initialises layers from its global generator and takes no other.
        """
        import torch

        seed = self.number & (2**63 - 1)
        before = torch.get_rng_state()
        try:
            if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                torch.manual_seed(seed)
            else:  # without a device torch would note down who called, for every seed
                torch.default_generator.manual_seed(seed)
            yield
        finally:
            torch.set_rng_state(before)


class Noise(Protocol):
    """Where the noise of differential privacy comes from."""

    def normal(self, *shape: int) -> npt.NDArray[np.float64]:
        """Independent numbers of the standard normal distribution."""


class SystemNoise:
    """From the operating system: nobody who knows the plan can repeat it, this room neither."""

    def normal(self, *shape: int) -> npt.NDArray[np.float64]:
        """Box and Muller's pairs of uniform numbers of 53 bits, none beyond 8.6 deviations.

        An ideal pair is farther off with a probability of 2⁻⁵³; one of the thousands of pairs of a
        set with about 10⁻¹² in all, which is little beside the δ that a plan may ask for (10⁻¹⁰ at
        least).
        """
        number = int(np.prod(shape, dtype=np.int64))
        pairs = (number + 1) // 2
        drawn = np.frombuffer(secrets.token_bytes(16 * pairs), np.uint64).reshape(2, pairs)
        uniform = (drawn >> np.uint64(64 - _BITS)).astype(np.float64)
        length = np.sqrt(-2.0 * np.log((uniform[0] + 1.0) * 2.0**-_BITS))  # of (0, 1]
        turn = 2.0 * np.pi * uniform[1] * 2.0**-_BITS
        both = np.concatenate([length * np.cos(turn), length * np.sin(turn)])
        return both[:number].reshape(shape)
