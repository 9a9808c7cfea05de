"""Captures as bytes, written field by field: the fixtures of the readers' tests."""

import struct

import numpy as np

INT16, PACKED_9, PACKED_12 = "43455c0", "4358", "4366c0"
CHIP_CODE = {"4339": 1, "4358": 3, "43455c0": 0x65, "4366c0": 0x6A}
WIDTH_CODE = {20: 2, 40: 3, 80: 4, 160: 5}


def nexmon_csi(subcarriers: int, seed: int) -> np.ndarray:
    """[subcarriers, 2] int16 in FFT order."""
    return np.random.default_rng(seed).integers(-2000, 2000, (subcarriers, 2)).astype("<i2")


def nexmon_datagram(
    csi: bytes,
    *,
    bandwidth: int = 80,
    rssi: int | None = -50,
    mac: bytes = b"\x02abcde",
    sequence: int = 0,
    core: int = 0,
    stream: int = 0,
    chip: int = 0x65,
) -> bytes:
    second = 0x1111 if rssi is None else (rssi & 0xFF) | 0x8800
    return (
        struct.pack(
            "<HH6sHHHH",
            0x1111,
            second,
            mac,
            sequence << 4 & 0xFFFF,
            core | stream << 3,
            0xC000 | WIDTH_CODE[bandwidth] << 11 | 42,
            chip,
        )
        + csi
    )


def udp(datagram: bytes, port: int = 5500) -> bytes:
    """IPv4 and UDP around a datagram; checksums are nobody's business here."""
    size = len(datagram) + 8
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, size + 20, 1, 0, 1, 17, 0, b"\n" * 4, b"\xff" * 4)
    return ip + struct.pack(">HHHH", 5500, port, size, 0) + datagram


def ethernet(packet: bytes) -> bytes:
    return b"\xff" * 6 + b"NEXMON" + b"\x08\x00" + packet


def pcap(
    packets: list[tuple[float, bytes]], *, order: str = "<", nano: bool = False, link: int = 1
) -> bytes:
    magic = 0xA1B23C4D if nano else 0xA1B2C3D4
    out = [struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 262144, link)]
    for time, packet in packets:
        unit = 10**9 if nano else 10**6
        seconds, fraction = divmod(round(time * unit), unit)
        out.append(struct.pack(f"{order}IIII", seconds, fraction, len(packet), len(packet)))
        out.append(packet)
    return b"".join(out)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += b"\0" * (-len(body) % 4)
    size = struct.pack(f"{order}I", len(body) + 12)
    return struct.pack(f"{order}I", kind) + size + body + size


def pcapng(
    packets: list[tuple[float, bytes]],
    *,
    order: str = "<",
    resolution: int = 6,
    link: int = 1,
    offset: int = 0,
) -> bytes:
    section = struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1)
    options = struct.pack(f"{order}HHB3x", 9, 1, resolution)
    options += struct.pack(f"{order}HHq", 14, 8, offset) + struct.pack(f"{order}HH", 0, 0)
    out = [
        block(0x0A0D0D0A, section, order),
        block(1, struct.pack(f"{order}HHI", link, 0, 262144) + options, order),
    ]
    unit = 2 ** (resolution & 127) if resolution & 128 else 10**resolution
    for time, packet in packets:
        ticks = round((time - offset) * unit)
        head = struct.pack(
            f"{order}IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, len(packet), len(packet)
        )
        out.append(block(6, head + packet, order))
    return b"".join(out)


def nexmon_file(packets: int = 4, bandwidth: int = 20, **container: object) -> bytes:
    subcarriers = bandwidth * 16 // 5
    frames = [
        (
            1000 + 0.01 * i,
            ethernet(
                udp(
                    nexmon_datagram(
                        nexmon_csi(subcarriers, i).tobytes(), bandwidth=bandwidth, sequence=i
                    )
                )
            ),
        )
        for i in range(packets)
    ]
    return pcap(frames, **container)  # type: ignore[arg-type]


def bits_of(values: list[tuple[int, int]]) -> bytes:
    """Numbers as (value, bits), lowest bit first, packed one behind the other."""
    total, place = 0, 0
    for value, width in values:
        total |= (value & ((1 << width) - 1)) << place
        place += width
    return total.to_bytes((place + 7) // 8, "little")


def bfee(
    csi: np.ndarray,
    *,
    selection: int = 0b100100,
    clock: int = 0,
    count: int = 0,
    rssi: tuple[int, int, int] = (40, 41, 42),
    noise: int = -90,
    agc: int = 30,
    rate: int = 0x0101,
) -> bytes:
    """One record; csi is [30, rx, tx, 2] integers as the card orders them."""
    _, rx, tx, _ = csi.shape
    values: list[tuple[int, int]] = []
    for subcarrier in csi.reshape(30, -1):
        values += [(0, 3), *((int(value), 8) for value in subcarrier)]
    payload = bits_of(values)
    body = struct.pack(
        "<IHHBBBBBbBBHH",
        clock,
        count,
        0,
        rx,
        tx,
        *rssi,
        noise,
        agc,
        selection,
        len(payload),
        rate,
    )
    return struct.pack(">HB", 1 + len(body) + len(payload), 0xBB) + body + payload


def intel_csi(rx: int, tx: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, (30, rx, tx, 2))


def intel_file(packets: int = 4, rx: int = 3, tx: int = 2) -> bytes:
    return b"".join(bfee(intel_csi(rx, tx, i), clock=1000 * i, count=i) for i in range(packets))


def feit_frame(
    csi: np.ndarray, *, flags: int, clock: int = 0, rssi: tuple[int, int] = (40, 42)
) -> bytes:
    """One record; csi is [rx, tx, subcarriers, 2]."""
    rx, tx, subcarriers, _ = csi.shape
    header = bytearray(272)
    struct.pack_into("<I", header, 0, 4 * rx * tx * subcarriers)
    header[46], header[47] = rx, tx
    struct.pack_into("<I", header, 52, subcarriers)
    struct.pack_into("<II", header, 60, *rssi)
    struct.pack_into("<II", header, 88, clock, flags)
    return bytes(header) + csi.astype("<i2").tobytes()


FEIT_HT20, FEIT_HT40, FEIT_VHT80, FEIT_HE20 = 0x200, 0xA00, 0x1300, 0x400


def feit_file(packets: int = 4, subcarriers: int = 56, flags: int = FEIT_HT20) -> bytes:
    rng = np.random.default_rng(7)
    return b"".join(
        feit_frame(rng.integers(-300, 300, (2, 1, subcarriers, 2)), flags=flags, clock=5000 * i)
        for i in range(packets)
    )


ESP_TOOL = (
    "CSI_DATA,AP,3C:71:BF:6D:2A:78,{rssi},11,{ht},0,{wide},1,1,0,{stbc},0,0,-93,0,1,{second},"
    "{clock},0,101,0,0,80.363225,{size},[{data} ]"
)
ESP_CLASSIC = (
    "CSI_DATA,{number},70:3a:73:0c:6c:fb,{rssi},11,{ht},7,{wide},1,1,1,{stbc},0,1,-91,1,1,{second},"
    "{clock},0,100,0,{size},1,[ {data} ]"
)
ESP_NEWER = (
    'CSI_DATA,{number},1a:00:00:00:00:00,{rssi},11,-96,43,1,11,{clock},47,0,{size},0,"[{data}]"'
)


def esp_line(
    form: str,
    values: np.ndarray,
    *,
    rssi: int = -60,
    clock: int = 0,
    number: int = 0,
    ht: int = 1,
    wide: int = 0,
    stbc: int = 0,
    second: int = 0,
) -> str:
    comma = "," if form is ESP_NEWER else " "
    return form.format(
        rssi=rssi,
        clock=clock,
        number=number,
        ht=ht,
        wide=wide,
        stbc=stbc,
        second=second,
        size=len(values),
        data=comma.join(map(str, values)),
    )


def esp_values(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, size)


def esp_file(lines: int = 4) -> bytes:
    text = [
        esp_line(ESP_CLASSIC, esp_values(256, i), clock=10_000 * i, number=i) for i in range(lines)
    ]
    return ("\n".join(["I (301) wifi: started", *text]) + "\n").encode()


SEEDS = {
    "nexmon": [
        nexmon_file(4, 20),
        nexmon_file(2, 80, order=">", nano=True),
        pcapng(
            [
                (1.0 + i, ethernet(udp(nexmon_datagram(nexmon_csi(64, i).tobytes(), bandwidth=20))))
                for i in range(3)
            ]
        ),
        pcap(
            [
                (
                    1.0,
                    ethernet(
                        udp(
                            nexmon_datagram(
                                (nexmon_csi(64, 2).view("<u4") & 0x7FFFFF).tobytes(),
                                bandwidth=20,
                                core=core,
                                stream=stream,
                                chip=0xDEAD,
                                rssi=None,
                            )
                        )
                    ),
                )
                for core in range(2)
                for stream in range(2)
            ]
        ),
    ],
    "intel5300": [intel_file(3), intel_file(4, 1, 1), intel_file(2, 3, 3)],
    "feitcsi": [feit_file(3)],
    "esp32": [
        esp_file(3),
        "\n".join(esp_line(ESP_TOOL, esp_values(384, i), clock=i) for i in range(2)).encode(),
        "\n".join(esp_line(ESP_NEWER, esp_values(114, i), clock=i) for i in range(3)).encode(),
        "\n".join(esp_line(ESP_TOOL, esp_values(128, i)) + ",1.5" for i in range(2)).encode(),
    ],
}
"""Sound files of each format, as small as they can be: what the mutation run starts from."""
