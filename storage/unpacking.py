"""How far a compressed file may expand: a limit against archives of a few kilobytes that fill the disk or memory."""

MAX_RATIO = 200  # text is compressed 3 to 20 times, a zip bomb a thousand times or more
RATIO_MATTERS_FROM = 16 * 2**20  # smaller contents may have any ratio


def most_unpacked(packed_bytes: int) -> int:
    """Return the number of bytes that a compressed file of this size may expand to."""
    return max(RATIO_MATTERS_FROM, MAX_RATIO * packed_bytes)
