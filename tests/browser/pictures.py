"""Pictures of pages for the documentation, and what they show as text, so that a picture of another page is found out.

Fonts differ between machines and pixels with them; what a page is made of does not: its headings, fields, buttons, links
and columns, as assistive technology hears them, are kept beside the picture and compared.
"""

from __future__ import annotations

import base64
import os
import re
import struct
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parent.parent.parent / "docs" / "images"
ANEW = "TENANTRY_PICTURES_ANEW" in os.environ
"""Make the pictures instead of comparing what they show (``make pictures``)."""
MOST_BYTES = 120_000

_PARTS = "heading|button|link|columnheader|tab|textbox|searchbox|combobox|checkbox|img"
_MADE_OF = re.compile(rf"""^\s*- '?({_PARTS})(?: ("(?:[^"\\\\]|\\\\.)*"))?""")
_PIXELS = """async picture => {
  const image = await createImageBitmap(await (await fetch("data:image/png;base64," + picture)).blob());
  const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
  context.drawImage(image, 0, 0);
  const bytes = context.getImageData(0, 0, image.width, image.height).data;
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return [image.width, image.height, btoa(text)];
}"""
"""Only a page without a content security policy may: an empty one."""


def kept(page: Any, workshop: Any, name: str) -> list[str]:
    """What differs between the page and what its picture shows; nothing where both are made anew."""
    picture, words = IMAGES / f"{name}.png", IMAGES / f"{name}.txt"
    found = made_of(page)
    if ANEW:
        picture.write_bytes(palette(*workshop.evaluate(_PIXELS, base64.b64encode(page.screenshot()).decode())))
        words.write_text(found, encoding="utf-8")
    wrong = [f"{name}.png is missing" for _ in range(not picture.exists())]
    if words.read_text(encoding="utf-8") != found:
        wrong.append(f"{name}.png shows another page than there is: look at it, then `make pictures`\n{found}")
    if picture.exists() and picture.stat().st_size > MOST_BYTES:
        wrong.append(f"{name}.png is larger than {MOST_BYTES} bytes")
    return wrong


def made_of(page: Any) -> str:
    """Headings, fields, buttons, links and columns of a page, one a line and in its order."""
    lines = [_MADE_OF.match(line) for line in page.locator("body").aria_snapshot().splitlines()]
    return "".join(f"{line[1]} {line[2] or ''}".strip().replace("''", "'") + "\n" for line in lines if line)


def palette(width: int, height: int, encoded: str) -> bytes:
    """A PNG of the 256 colours that are met most; each other one becomes the nearest of them."""
    pixels = [pixel for (pixel,) in struct.iter_unpack("<I", base64.b64decode(encoded))]
    met = [colour for colour, _ in Counter(pixels).most_common()]
    table = [_channels(colour) for colour in met[:256]]
    index = {colour: number for number, colour in enumerate(met[:256])}
    for colour in met[256:]:
        red, green, blue = _channels(colour)
        distances = [(red - r) ** 2 + (green - g) ** 2 + (blue - b) ** 2 for r, g, b in table]
        index[colour] = distances.index(min(distances))
    rows = bytes(index[pixel] for pixel in pixels)
    lines = b"".join(b"\0" + rows[at : at + width] for at in range(0, width * height, width))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in (
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            (b"PLTE", b"".join(map(bytes, table))),
            (b"IDAT", zlib.compress(lines, 9)),
            (b"IEND", b""),
        )
    )


def _channels(colour: int) -> tuple[int, int, int]:
    return colour & 255, colour >> 8 & 255, colour >> 16 & 255
