import numpy as np
import pytest
from PIL import Image

from diffclust.explain.pictures import cluster_sheet, sheet, write_png


@pytest.mark.parametrize("shape", [(1, 1, 3), (7, 13, 3), (200, 300, 3)])
def test_a_png_decodes_to_the_same_pixels(tmp_path, shape):
    picture = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    write_png(tmp_path / "a.png", picture)
    with Image.open(tmp_path / "a.png") as image:
        image.verify()  # the checksums
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "PNG"
        assert image.mode == "RGB"
        assert (np.asarray(image) == picture).all()


def test_layout():
    rows = [np.zeros((3, 4, 5)), np.full((1, 4, 5), 0.5)]
    picture = sheet(rows, zoom=2, gap=1)
    assert picture.shape == (2 * (4 * 2 + 1) + 1, 3 * (5 * 2 + 1) + 1, 3)
    assert picture.dtype == np.uint8
    wanted = np.full_like(picture, 255)  # gaps and missing images are white
    for j in range(3):
        wanted[1:9, 1 + 11 * j : 11 + 11 * j] = 0
    wanted[10:18, 1:11] = 128
    assert (picture == wanted).all()


def test_every_pixel_becomes_a_square():
    image = np.arange(6).reshape(1, 2, 3) / 5
    picture = sheet([image], zoom=3, gap=0)
    assert (picture[1::3, 1::3, 0] == [[0, 51, 102], [153, 204, 255]]).all()
    assert (picture[::3] == picture[2::3]).all()
    assert (picture[:, ::3] == picture[:, 2::3]).all()


def test_grey_with_and_without_a_channel_axis():
    grey = np.random.default_rng(0).random((2, 4, 4))
    picture = sheet([grey], zoom=4)
    assert (picture == picture[..., :1]).all()
    assert (sheet([grey[..., None]], zoom=4) == picture).all()


def test_colour_stays_colour():
    red = np.zeros((1, 2, 2, 3))
    red[..., 0] = 1
    picture = sheet([red], zoom=1, gap=1)
    assert picture[1, 1].tolist() == [255, 0, 0]
    assert picture[0, 0].tolist() == [255, 255, 255]


def test_values_beyond_the_range_are_cut():
    picture = sheet([np.array([[[-1.0, 2.0]]])], zoom=1, gap=0)
    assert picture[0, :, 0].tolist() == [0, 255]


def test_a_cluster_shows_its_centre_and_its_surest_members():
    images = np.stack([np.full((2, 2), value) for value in (0.0, 0.2, 0.4, 0.6)])
    labels, sureness = np.array([0, 1, 0, 0]), np.array([0.5, 0.9, 0.9, 0.7])
    picture = cluster_sheet(images, labels, sureness, np.ones((3, 2, 2)) * 0.8)  # cluster 2 is empty
    first = picture[6::50, 6::50, 0]  # one point of each 48x48 square
    assert first.tolist() == [[204, 255, 102, 153, 0], [204, 255, 51, 255, 255], [204, 255, 255, 255, 255]]
