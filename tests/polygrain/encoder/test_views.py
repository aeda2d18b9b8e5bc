import numpy as np
import pytest
import torch

from polygrain.compute import processes
from polygrain.encoder.views import (
    Augmentation,
    ShareOfDraws,
    augment,
    blur,
    centre_crop,
    centre_square,
    change_colours,
    crop_and_flip,
    thicken,
)

NOTHING = {"smallest_crop": 1.0, "turn": 0.0, "flip": 0.0, "stroke": 0.0}
NOTHING |= {"jitter": 0.0, "tint": 0.0, "grey": 0.0, "blur": 0.0}


def params(**values):
    return Augmentation(**(NOTHING | values))


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def pixels():
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (6, 20, 20, 3), dtype=np.uint8))


def test_augment__is_repeatable_and_differs_between_images(pixels):
    everything = params(smallest_crop=0.3, turn=30.0, flip=0.5, stroke=1.5, jitter=0.4, tint=0.2, grey=0.2, blur=0.5)
    same = pixels[:1].expand(6, -1, -1, -1)
    views = augment(same, 16, everything, draw(1))
    assert torch.equal(views, augment(same, 16, everything, draw(1)))
    assert len({view.sum().item() for view in views}) == 6
    assert views.min() >= 0 and views.max() <= 1


def test_crop_and_flip__certain_flip_of_the_whole_mirrors(pixels):
    views = crop_and_flip(pixels, 20, params(flip=1.0), draw())
    expected = pixels.flip(2).permute(0, 3, 1, 2).float() / 255
    torch.testing.assert_close(views, expected, rtol=1e-4, atol=1e-4)


def test_crop_and_flip__turns_by_the_angle_it_says():
    bar = torch.zeros(300, 41, 41, 3, dtype=torch.uint8)
    bar[:, 20, :, :] = 255  # a horizontal line through the centre
    views = crop_and_flip(bar, 41, params(turn=30.0), draw())[:, 0]
    y, x = torch.meshgrid(torch.arange(41.0) - 20, torch.arange(41.0) - 20, indexing="ij")
    inside = (x.square() + y.square()).sqrt() < 18
    weights = views * inside
    angles = 0.5 * torch.atan2(2 * (weights * x * y).sum((1, 2)), (weights * (x.square() - y.square())).sum((1, 2)))
    degrees = angles.rad2deg().abs()
    assert degrees.max() < 31 and degrees.max() > 27 and 10 < degrees.mean() < 20


def ramps(count: int) -> torch.Tensor:
    """Images whose red says how far to the right a place is, and whose green says how far down; in 0..99."""
    ramp = torch.zeros(count, 100, 100, 3, dtype=torch.uint8)
    ramp[..., 0], ramp[..., 1] = torch.arange(100), torch.arange(100)[:, None]
    return ramp


def spans(views: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The width and the height of what views of `ramps` show, as parts of the image."""
    size = views.shape[-1]
    wide, high = views[:, 0, 0, -1] - views[:, 0, 0, 0], views[:, 1, -1, 0] - views[:, 1, 0, 0]
    return wide * 2.55 * size / (size - 1), high * 2.55 * size / (size - 1)


@pytest.mark.parametrize("aspect", [1.0, 4 / 3])
def test_crop_and_flip__ratios_and_areas_are_those_of_the_whole_image(aspect):
    """As for a plain draw of rectangles in an image of 4 to 3: they reach its sides, and their ratio counts pixels."""
    aspects = torch.full((400,), aspect)
    width, height = spans(crop_and_flip(ramps(400), 50, params(smallest_crop=0.25), draw(), 4 / 3, aspects))
    ratios, areas = width * aspect / height, width * height
    assert 0.74 < ratios.min() < 0.78 and 1.28 < ratios.max() < 1.36
    assert 0.24 < areas.min() < 0.28 and 0.9 < areas.max() < 1.03 and width.max() < 1.02 and height.max() < 1.02


def test_crop_and_flip__of_a_strip_takes_the_nearest_ratio_that_fits():
    aspects = torch.tensor([10.0, 0.1])
    width, height = spans(crop_and_flip(ramps(2), 80, params(smallest_crop=0.99), draw(), 4 / 3, aspects))
    torch.testing.assert_close(width, torch.tensor([4 / 30, 1.0]), atol=0.02, rtol=0)
    torch.testing.assert_close(height, torch.tensor([1.0, 4 / 30]), atol=0.02, rtol=0)


def test_crop_and_flip__turns_in_proportion():
    """A disc of an image of 2 to 1 stays one, whatever the angle."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, 101), torch.linspace(-1, 1, 101), indexing="ij")
    disc = (255 * (((2 * x) ** 2 + y**2) < 0.04)).to(torch.uint8).expand(200, 3, 101, 101).permute(0, 2, 3, 1)
    views = crop_and_flip(disc, 101, params(turn=90.0, smallest_crop=1.0), draw(), 1.0, torch.full((200,), 2.0))[:, 0]
    seen = (views > 0.5).double()
    # The crop is the largest square. It may be beside the disc, or show some of it again beyond the image's edge.
    sizes = seen.mean((1, 2))
    whole = seen[(sizes - sizes.median()).abs() < 0.0005]
    assert len(whole) > 50
    mass = whole.sum((1, 2))
    mean_x, mean_y = (((whole * axis).sum((1, 2)) / mass)[:, None, None] for axis in (x, y))
    along, across = ((whole * (axis - mean) ** 2).sum((1, 2)) for axis, mean in ((x, mean_x), (y, mean_y)))
    both = (whole * (x - mean_x) * (y - mean_y)).sum((1, 2))
    assert (along / across).log().abs().max() < 0.2 and (both / across).abs().max() < 0.2


def test_centre_square__is_the_middle_of_the_whole_image_in_proportion():
    width, height = spans(centre_square(ramps(2), 40, torch.tensor([2.0, 0.5]), 0.8))
    torch.testing.assert_close(width, torch.tensor([0.4, 0.8]), atol=0.01, rtol=0)
    torch.testing.assert_close(height, torch.tensor([0.8, 0.4]), atol=0.01, rtol=0)


def test_thicken__equals_one_pixel_at_a_time(pixels):
    images = centre_crop(pixels, 16)
    drawn = 1.6 * (2 * torch.rand(6, 1, 1, 1, generator=draw(4)) - 1)
    assert (drawn > 1).any() or (drawn < -1).any()
    expected = images.clone()
    for i, amount in enumerate(drawn.flatten().tolist()):
        choose = max if amount > 0 else min
        for share in (min(abs(amount), 1), max(abs(amount) - 1, 0)):
            before = expected[i].clone()
            for c in range(3):
                for y in range(16):
                    for x in range(16):
                        window = before[c, max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2].flatten().tolist()
                        expected[i, c, y, x] = (1 - share) * before[c, y, x] + share * choose(window)
    torch.testing.assert_close(thicken(images, params(stroke=1.6), draw(4)), expected)


def test_change_colours__equals_one_image_at_a_time(pixels):
    images = centre_crop(pixels, 16)
    chosen, generator = params(jitter=0.4, tint=0.3, grey=0.5), draw(3)
    factors = 1 + 0.4 * (2 * torch.rand(3, 6, 1, 1, 1, generator=generator) - 1)
    channels = 1 + 0.3 * (2 * torch.rand(6, 3, 1, 1, generator=generator) - 1)
    drop = torch.rand(6, 1, 1, 1, generator=generator) < 0.5
    result = change_colours(images, chosen, draw(3))
    for i, image in enumerate(images):
        image = image * factors[0, i] * channels[i]
        image = (image - image.mean()) * factors[1, i] + image.mean()
        grey = 0.299 * image[0] + 0.587 * image[1] + 0.114 * image[2]
        saturation = 0 if drop[i] else factors[2, i]
        torch.testing.assert_close(result[i], (grey + (image - grey) * saturation).clamp(0, 1))
    assert drop.any() and not drop.all()


@pytest.mark.parametrize(("side", "largest", "size"), [(224, 2.0, 23), (48, 0.96, 5)])
def test_blur__at_224_px_has_the_kernel_and_sigma_of_the_papers(side, largest, size):
    """A point becomes the kernel: its second moment along x is sigma^2 (a little less, where the kernel ends early)."""
    points = torch.zeros(300, 3, side, side)
    points[:, :, side // 2, side // 2] = 1
    profiles = blur(points, params(blur=1.0), draw())[:, 0].sum(1)
    distances = torch.arange(side) - side // 2
    sigmas = (profiles * distances.square()).sum(1).sqrt()
    assert 0.9 * largest < sigmas.max() < largest and sigmas.min() < 0.25
    assert int((profiles > 0).any(0).sum()) == size


@pytest.mark.parametrize("world", [2, 3])
def test_augment__a_share_of_a_batch_has_the_views_that_it_has_in_the_batch(monkeypatch, world):
    pixels, whole = torch.randint(0, 256, (7, 24, 24, 3), dtype=torch.uint8), draw(2)
    chosen = params(smallest_crop=0.4, turn=20.0, flip=0.5, stroke=1.5, jitter=0.3, tint=0.2, grey=0.5, blur=0.5)
    expected = augment(pixels, 16, chosen, whole, ratio=4 / 3)
    monkeypatch.setenv("WORLD_SIZE", str(world))
    views = []
    for rank in range(world):
        monkeypatch.setenv("RANK", str(rank))
        alone = draw(2)
        views.append(augment(pixels[processes.share(7)], 16, chosen, ShareOfDraws(alone, 7), ratio=4 / 3))
        assert torch.equal(alone.get_state(), whole.get_state())  # what is drawn next is the same, too
    torch.testing.assert_close(torch.cat(views), expected)
