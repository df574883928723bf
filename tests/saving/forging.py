"""Folders as a stranger could make them: any settings, any tensors, and checksums that fit."""

import json

from safetensors.torch import load_file, save

from diffclust.saving.folder import SETTINGS, SUMS, TENSORS, sums_of


def forge(folder, settings=None, tensors=None):
    """Change a saved model by functions of its settings and of its tensors."""
    said = json.loads((folder / SETTINGS).read_bytes())
    values = load_file(folder / TENSORS)
    if settings is not None:
        settings(said)
    if tensors is not None:
        tensors(values)
    write(folder, json.dumps(said).encode(), save({name: value.contiguous() for name, value in values.items()}))


def write(folder, settings, tensors):
    blobs = {SETTINGS: settings, TENSORS: tensors}
    for name, blob in blobs.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_bytes(blob)
    (folder / SUMS).write_bytes(sums_of(blobs))
