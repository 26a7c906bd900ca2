"""xxHash64 with seed 0 in plain Python, after the specification (doc/xxhash_spec.md of github.com/Cyan4973/xxHash). The module xxhash is faster."""

M = 2**64 - 1
P1, P2, P3, P4, P5 = 11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261


def rotate(x, bits):
    return (x << bits | x >> 64 - bits) & M


def lane(acc, word):
    return rotate((acc + word * P2) & M, 31) * P1 & M


def xxh64_intdigest(b):
    def word(at, size):
        return int.from_bytes(b[at:at + size], "little")

    at, h = 0, P5
    if len(b) >= 32:
        accs = [(P1 + P2) & M, P2, 0, -P1 & M]
        while at + 32 <= len(b):
            accs = [lane(acc, word(at + 8 * i, 8)) for i, acc in enumerate(accs)]
            at += 32
        h = sum(rotate(acc, bits) for acc, bits in zip(accs, (1, 7, 12, 18))) & M
        for acc in accs:
            h = ((h ^ lane(0, acc)) * P1 + P4) & M
    h = (h + len(b)) & M
    while at + 8 <= len(b):
        h = (rotate(h ^ lane(0, word(at, 8)), 27) * P1 + P4) & M
        at += 8
    if at + 4 <= len(b):
        h = (rotate(h ^ word(at, 4) * P1 & M, 23) * P2 + P3) & M
        at += 4
    for byte in b[at:]:
        h = rotate(h ^ byte * P5 & M, 11) * P1 & M
    h = (h ^ h >> 33) * P2 & M
    h = (h ^ h >> 29) * P3 & M
    return h ^ h >> 32
