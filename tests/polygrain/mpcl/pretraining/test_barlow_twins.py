import torch

from polygrain.losses.barlow_twins import barlow_twins
from polygrain.mpcl.pretraining.barlow_twins import BarlowTwins, match
from polygrain.mpcl.pretraining.heads import build_projectors
from tests.helpers.pretraining_world import RESNET, barlow, network, views
from tests.helpers.small import CONFIG


def build(config=CONFIG, heads=3):
    params, encoder = barlow(), network(config)
    return BarlowTwins(
        encoder, build_projectors(encoder.dim, heads, "different", "plain", params.projector, 0.0), params
    )


def test_forward__is_barlow_twins_for_each_head():
    twins, (first, second) = build(), views()
    measured = twins(first, second, 0.0, torch.Generator())
    for m, head in enumerate(twins.projectors.networks):
        z1, z2 = (head(twins.encoder(x)) for x in (first, second))
        torch.testing.assert_close(measured.losses[m], 0.1 * barlow_twins(z1, z2, 0.005))
        torch.testing.assert_close(measured.projections[m], z1)


def test_forward__each_view_has_batch_statistics_of_its_own():
    """Both views at once through a batch norm would let them see each other."""
    twins = build(RESNET)
    first, second = views()
    features = twins(first, second, 0.0, torch.Generator()).features
    torch.testing.assert_close(features, twins.encoder(first))


def test_match__counts_pairs_whose_second_view_is_the_nearest():
    z = torch.randn(6, 5)
    assert match(z, z + 1e-3 * torch.randn(6, 5)) == 1
    swapped = z[[1, 0, 2, 3, 4, 5]]
    torch.testing.assert_close(match(z, swapped), torch.tensor(4 / 6))
