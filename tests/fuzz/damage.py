"""Making files that are not whole out of files that are."""

import copy
import json
import os

import torch

NUMBERS = [0, -1, 1, 2, 3, 10**8, 10**12, 10**30, -(10**9), 0.0, 1e-320, 1e308, 0.5, True, False]
NUMBERS += [float("nan"), float("inf"), float("-inf")]
THINGS = [None, "", "x", "rows", "../../etc/passwd", "é" * 50, [], {}, [None], [[]], {"a": 1}, [1] * 5000, "9" * 5000]
DEEP = "a deep list"


def flipped(rng, blob):
    blob = bytearray(blob)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        if blob:
            blob[rng.randrange(len(blob))] = rng.randrange(256)
    return bytes(blob)


def cut(rng, blob):
    return blob[: rng.randrange(len(blob) + 1)]


def stretched(rng, blob):
    return blob + rng.randbytes(rng.choice([1, 8, 1000]))


def shuffled(rng, blob):
    """A piece moved to another place."""
    a, b = sorted(rng.randrange(len(blob) + 1) for _ in range(2))
    piece, rest = blob[a:b], blob[:a] + blob[b:]
    place = rng.randrange(len(rest) + 1)
    return rest[:place] + piece + rest[place:]


BYTES = [flipped, flipped, cut, stretched, shuffled]


def places(value, path=()):
    """Ways to every value of nested JSON, those of long lists by a few."""
    yield path
    if len(path) > 10:
        return
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for i in range(min(len(value), 4)):
            yield from places(value[i], (*path, i))


def hostile(rng):
    if rng.random() < 0.02:
        return DEEP
    return copy.deepcopy(rng.choice(NUMBERS if rng.random() < 0.6 else THINGS))


def as_json(value):
    return json.dumps(value).replace(f'"{DEEP}"', "[" * 100_000 + "]" * 100_000)


def forged(rng, settings):
    """Some values of the settings are others, or gone."""
    for _ in range(rng.choice([1, 1, 2, 5])):
        ways = [path for path in places(settings) if path]
        if not ways:
            break
        way = rng.choice(ways)
        home = settings
        for step in way[:-1]:
            home = home[step]
        what = rng.random()
        if what < 0.15:
            del home[way[-1]]
        elif what < 0.25 and isinstance(home, dict):
            home[rng.choice(["new", "n_clusters", "format", ""])] = hostile(rng)
        elif what < 0.35 and isinstance(home[way[-1]], list):
            home[way[-1]] = home[way[-1]] * rng.choice([0, 2, 100])
        else:
            home[way[-1]] = hostile(rng)
    return settings


def bent(rng, tensors):
    """Some tensors have other values, shapes, kinds, or are gone."""
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice(list(tensors))
        value = tensors[name].clone()
        what = rng.randrange(7)
        if what == 0:
            del tensors[name]
            continue
        if what == 1 and value.numel():
            value.view(-1)[rng.randrange(value.numel())] = _fitting(rng, value)
        elif what == 2:
            value = value.double() if value.is_floating_point() else value.float()
        elif what == 3:
            value = value.flatten()[: rng.randrange(value.numel() + 1)]
        elif what == 4:
            value = value[None].repeat(rng.choice([1, 2, 50]), *[1] * value.ndim)
        elif what == 5 and value.is_floating_point():
            value = value * rng.choice([0.0, -1.0, 1e10, 1e30, 1e38])
        else:
            tensors[rng.choice(["model.new", "stream.counts", "params.init", "runs.9.labels", name + "x"])] = value
            continue
        tensors[name] = value
    return tensors


def _fitting(rng, value):
    if value.is_floating_point():
        return rng.choice([float("nan"), float("inf"), -1.0, 0.0, 1e38, 1e-38])
    return rng.choice([0, 1]) if value.dtype == torch.bool else rng.choice([-1, 3, 10**9, -(2**62)])


def declared(rng, blob):
    """A safetensors header whose shapes and places are lies."""
    size = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + size])
    name = rng.choice([name for name in header if name != "__metadata__"] or [None])
    if name is None:
        return flipped(rng, blob)
    entry = header[name]
    what = rng.randrange(4)
    if what == 0:
        entry["shape"] = rng.choice([[2**40], [2**33, 2**33], [0], [-1], [], [1] * 300])
    elif what == 1:
        entry["data_offsets"] = rng.choice([[0, 2**50], [8, 0], [-8, 8], [0, 0]])
    elif what == 2:
        entry["dtype"] = rng.choice(["F64", "I8", "BOOL", "F8_E4M3", "BF16", "U64", "X"])
    else:
        header[name] = hostile(rng)
    text = as_json(header).encode()
    return rng.choice([len(text), 2**40, 0, len(text) - 1]).to_bytes(8, "little") + text + blob[8 + size :]


def odd(rng, path):
    """Something that is no file, or another one, in a file's place."""
    whole = path.read_bytes()
    path.unlink()
    what = rng.randrange(8)
    if what == 0:
        os.mkfifo(path)
    elif what == 1:
        path.symlink_to("/dev/zero")
    elif what == 2:
        path.symlink_to(path)
    elif what == 3:
        path.mkdir()
    elif what == 4:
        path.symlink_to("/etc/passwd")
    elif what == 5:
        lines = [b"0" * 64 + b"  ../../../etc/passwd\n", b"0" * 64 + b"  /dev/zero\n", b"\xff\n", b"  \n", b"\0" * 100]
        path.write_bytes(whole + rng.choice(lines))
    elif what == 6:
        path.symlink_to("nothing")
