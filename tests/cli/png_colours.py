# png_colours.py: prints width, height, number of distinct colours and the share of the commonest one of an 8-bit PNG.
import collections
import struct
import sys
import zlib


def unfiltered_rows(data, width, height, channels):
    stride = width * channels
    previous = bytearray(stride)
    for row in range(height):
        start = row * (stride + 1)
        kind = data[start]
        line = bytearray(data[start + 1 : start + 1 + stride])
        for i in range(stride):
            left = line[i - channels] if i >= channels else 0
            up = previous[i]
            corner = previous[i - channels] if i >= channels else 0
            if kind == 1:
                line[i] = (line[i] + left) & 255
            elif kind == 2:
                line[i] = (line[i] + up) & 255
            elif kind == 3:
                line[i] = (line[i] + (left + up) // 2) & 255
            elif kind == 4:
                estimate = left + up - corner
                nearest = min((left, up, corner), key=lambda x: abs(estimate - x))
                line[i] = (line[i] + nearest) & 255
        yield line
        previous = line


def main(path):
    with open(path, "rb") as file:
        png = file.read()
    assert png[:8] == b"\x89PNG\r\n\x1a\n", "not a PNG file"
    at, compressed = 8, b""
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour_type = struct.unpack(">IIBB", body[:10])
            channels = {2: 3, 6: 4}[colour_type]
            assert depth == 8, "not 8 bits a channel"
        elif kind == b"IDAT":
            compressed += body
        at += 12 + length
    counts = collections.Counter()
    for line in unfiltered_rows(zlib.decompress(compressed), width, height, channels):
        counts.update(bytes(line[i : i + 3]) for i in range(0, len(line), channels))
    print(width, height, len(counts), max(counts.values()) / (width * height))


main(sys.argv[1])
