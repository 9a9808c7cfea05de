"""Captures as a Nexmon 43455c0 would have recorded them: simulated ones become files to import."""

import functools
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedapa.csi.capture import Capture
from fedapa.csi.nexmon_format import BANDWIDTHS, CODES, HEADER, PORT, SIMULATED
from fedapa.csi.pcap import pcap_header, pcap_record
from fedapa.csi.subcarriers import all_subcarriers
from fedapa.errors import CaptureError
from fedapa.files import aside

__all__ = ["nexmon_packet", "write_nexmon"]

_REWRITTEN = b"\x02fedap"


def write_nexmon(capture: Capture, path: str | Path, *, scale: float = 1.0) -> None:
    """Write a capture as a 43455c0 would have recorded it: rounded to int16, times ``scale``.

    Subcarriers that the capture lacks are written as zero. Reading the file back gives ``scale``
    times its CSI, within half a unit in the real and the imaginary part; that a capture is
    synthetic is told by its sender's address, and read back.
    """
    path = Path(path)
    subcarriers = (
        all_subcarriers(capture.bandwidth) if capture.bandwidth in BANDWIDTHS.values() else ()
    )
    if not set(capture.subcarriers.tolist()) <= set(subcarriers):
        raise CaptureError(
            f"{path.name}: {capture.bandwidth} MHz with subcarriers from "
            f"{capture.subcarriers.min()} to {capture.subcarriers.max()} does not fit a Nexmon "
            "frame; expected 20, 40 or 80 MHz"
        )
    packets, _, cores, streams = capture.csi.shape
    if cores > 8 or streams > 8:
        raise CaptureError(f"{path.name}: {cores} × {streams} antennas; Nexmon numbers 8 × 8")
    full = np.zeros((packets, len(subcarriers), cores, streams, 2), np.float64)
    places = capture.subcarriers.astype(np.int64) - subcarriers[0]
    full[..., 0][:, places] = capture.csi.real * scale
    full[..., 1][:, places] = capture.csi.imag * scale
    if not np.isfinite(full).all() or np.abs(full).max(initial=0) > 32767:
        raise CaptureError(
            f"{path.name}: values up to {np.abs(full).max(initial=0):.6g} do not fit int16; "
            "give a smaller scale"
        )
    words = np.fft.ifftshift(np.rint(full).astype("<i2"), axes=1)
    words = np.moveaxis(words, 1, 3).reshape(
        packets * cores * streams, -1
    )  # (frames, 2 · subcarriers)
    records = np.repeat(_record_template(capture, words.shape[1] * 2), len(words))
    frame = np.arange(len(words))
    packet, link = frame // (cores * streams), frame % (cores * streams)
    stamps = np.rint(capture.timestamps * 1e6).astype(np.int64)[packet]
    records["seconds"], records["microseconds"] = np.divmod(stamps, 10**6)
    heard = np.rint(np.nan_to_num(capture.rssi)).astype(np.int64) & 0xFF
    records["rssi"] = np.where(np.isnan(capture.rssi), 0x1111, heard | 0x8800)[packet]
    numbers = np.arange(packets) if capture.sequence is None else capture.sequence
    records["sequence"] = (numbers[packet] << 4) & 0xFFFF
    records["link"] = link // streams | link % streams << 3
    records["csi"] = words
    with aside(path) as partial:
        partial.write_bytes(pcap_header() + records.tobytes())


def _record_template(capture: Capture, size: int) -> npt.NDArray[np.void]:
    """One pcap record of a frame with ``size`` bytes of CSI, all but what differs filled in."""
    head = pcap_record(0, 0, nexmon_packet(bytes(HEADER + size)))[: -HEADER - size]
    record = np.zeros(
        1,
        [
            ("seconds", "<u4"),
            ("microseconds", "<u4"),
            ("rest", f"V{len(head) - 8}"),
            ("magic", "<u2"),
            ("rssi", "<u2"),
            ("sender", "V6"),
            ("sequence", "<u2"),
            ("link", "<u2"),
            ("channel", "<u2"),
            ("chip", "<u2"),
            ("csi", "<i2", (size // 2,)),
        ],
    )
    code = next(c for c, b in BANDWIDTHS.items() if b == capture.bandwidth)
    record["rest"] = np.void(head[8:])
    record["magic"] = 0x1111
    record["sender"] = np.void(SIMULATED.tobytes() if capture.synthetic else _REWRITTEN)
    record["channel"] = 0xC000 | code << 11 | 42  # 5 GHz, around channel 42
    record["chip"] = CODES["43455c0"]
    return record


def nexmon_packet(datagram: bytes) -> bytes:
    """The packet in which the firmware sends a datagram; it leaves the UDP checksum out."""
    return _packet_head(len(datagram)) + datagram


@functools.lru_cache(maxsize=64)  # frames of a receiver are alike, and come by the thousand
def _packet_head(length: int) -> bytes:
    size = length + 8
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, size + 20, 1, 0, 1, 17, 0, b"\n\n\n\n", b"\xff" * 4)
    total = sum(struct.unpack(">10H", ip))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    ip = ip[:10] + struct.pack(">H", checksum) + ip[12:]
    ports = struct.pack(">HHHH", PORT, PORT, size, 0)
    return b"\xff" * 6 + b"NEXMON" + b"\x08\x00" + ip + ports
