"""Reads one capture with csiread and saves what it found: a process of its own, as it may crash."""

import sys
from collections.abc import Callable

import csiread
import numpy as np


def nexmon(path: str, chip: str, bandwidth: str) -> dict[str, np.ndarray]:
    reader = csiread.Nexmon(path, chip=chip, bw=int(bandwidth), if_report=False)
    reader.read()
    return {
        "csi": np.fft.fftshift(reader.csi, axes=1)[:, :, None, None],
        "timestamps": reader.sec + reader.usec * 1e-6,
    }


def intel5300(path: str) -> dict[str, np.ndarray]:
    """Files that mix antenna counts are read for the largest; the count of each is told."""
    reader = csiread.Intel(path, nrxnum=3, ntxnum=3, if_report=False)
    reader.read()
    return {
        "csi": reader.csi,
        "rx": reader.Nrx,
        "tx": reader.Ntx,
        "clock": reader.timestamp_low,
        "scaled": reader.get_scaled_csi(),
    }


def esp32(path: str) -> dict[str, np.ndarray]:
    reader = csiread.ESP32(path, if_report=False)
    reader.read()
    return {"csi": reader.csi, "rssi": reader.rssi}


READERS: dict[str, Callable[..., dict[str, np.ndarray]]] = {
    "nexmon": nexmon,
    "intel5300": intel5300,
    "esp32": esp32,
}

if __name__ == "__main__":
    out, form, *arguments = sys.argv[1:]
    np.savez(out, **READERS[form](*arguments))
