import threading

import pytest
import torch
from torch import nn

from polygrain.compute import processes
from polygrain.mpcl.whole_norm import WholeBatchNorm2d, moments, see_all_processes, statistics_anew
from tests.helpers.torchrun import torchrun

PROGRAM = """
import sys
from pathlib import Path
import torch
from polygrain.compute import processes
from tests.polygrain.mpcl.test_whole_norm import parts, step

found = step(parts()[processes.rank()], 2)
torch.save(found, Path(sys.argv[1]) / f"{processes.rank()}")
"""


def parts():
    """What two processes hold: pictures that differ in number and sides, far from zero, the second part brighter."""
    generator = torch.Generator().manual_seed(0)
    dark, bright = (torch.randn(shape, generator=generator).double() for shape in ((3, 4, 5, 2), (2, 4, 1, 7)))
    return dark + 30, 2 * bright + 50


def network():
    """Nothing in it but batch norms knows which pixels lie side by side, so that one process may have them in a row."""
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Conv2d(4, 3, 1), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 5, 1), nn.BatchNorm2d(5))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.uniform_(-1, 2, generator=generator)
    return net.double()


def step(images, count):
    """One process of `count`: its output, its images' gradient, all parameters' gradients, the state that it keeps."""
    net = see_all_processes(network())
    images = images.clone().requires_grad_(True)
    output = net(images)
    # Of another weight for each pixel, by its value, or batch norm would take the gradient out again.
    ((output.square() * images.detach().mean(1, keepdim=True)).sum() / count).backward()
    gradients = [parameter.grad for parameter in net.parameters()]
    processes.add_up(gradients)
    return {"output": output.detach(), "images": images.grad} | {
        "gradients": torch.cat([gradient.flatten() for gradient in gradients]),
        "state": torch.cat([buffer.flatten().double() for buffer in net.buffers()]),
    }


def in_a_row(images):
    return torch.cat([part.transpose(0, 1).flatten(1) for part in images], 1)[None, :, :, None]


def two_processes(monkeypatch, work):
    """What `work` finds in each of two threads, which stand for processes and add up between them."""
    found, given, barrier = [None, None], [None, None], threading.Barrier(2, timeout=30)

    def add_up(tensors):
        me = int(threading.current_thread().name)
        given[me] = [tensor.detach().clone() for tensor in tensors]
        barrier.wait()
        for tensor, first, second in zip(tensors, *given, strict=True):
            tensor.detach().copy_(first + second)
        barrier.wait()

    def run(me):
        try:
            found[me] = work(me)
        except BaseException:
            barrier.abort()
            raise

    monkeypatch.setattr(processes, "count", lambda: 2)
    monkeypatch.setattr(processes, "add_up", add_up)
    threads = [threading.Thread(target=run, args=(me,), name=str(me)) for me in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.undo()
    return found


def compare(found, images):
    """With one process that has all pixels, in torch's own batch norm."""
    whole = step(in_a_row(images), 2)
    for name in ("output", "images"):
        torch.testing.assert_close(in_a_row([part[name] for part in found]), whole[name], rtol=1e-9, atol=1e-9)
    for name in ("gradients", "state"):
        assert torch.equal(found[0][name], found[1][name])
        torch.testing.assert_close(found[0][name], whole[name], rtol=1e-9, atol=1e-9)


def test_moments__say_what_all_pixels_of_a_channel_say():
    images, _ = parts()
    pixels = in_a_row([images])[0, :, :, 0]
    plain = torch.stack([torch.full((4,), 30.0).double(), pixels.sum(1), pixels.square().sum(1)])
    torch.testing.assert_close(moments(images), plain)
    assert moments(images.float()).dtype == torch.float64
    assert not moments(images[:0]).any()


def test_forward__of_one_process_is_torchs_to_the_bit():
    images, _ = parts()
    plain, ours = network(), see_all_processes(network())
    for _ in range(2):
        assert torch.equal(plain(images), ours(images))
    assert all(torch.equal(a, b) for a, b in zip(plain.state_dict().values(), ours.state_dict().values(), strict=True))
    assert torch.equal(plain.eval()(images), ours.eval()(images))


def test_forward__two_processes_find_what_one_finds_with_all_pixels(monkeypatch):
    images = parts()
    compare(two_processes(monkeypatch, lambda me: step(images[me], 2)), images)


def test_forward__a_part_may_be_empty(monkeypatch):
    images = (parts()[0], parts()[1][:0])
    compare(two_processes(monkeypatch, lambda me: step(images[me], 2)), images)


def test_forward__each_alone_would_find_something_else():
    """That the comparison above can fail."""
    images = parts()
    with pytest.raises(AssertionError):
        compare([step(part, 2) for part in images], images)


@pytest.mark.slow
def test_torchrun__two_processes_find_what_one_finds_with_all_pixels(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    torchrun(2, program, tmp_path)
    compare([torch.load(tmp_path / name, weights_only=True) for name in ("0", "1")], parts())


def test_see_all_processes__keeps_names_weights_and_places():
    net = network()
    names, norm = list(net.state_dict()), net[1]
    assert see_all_processes(nn.Sequential(net, norm))[0] is net and list(net.state_dict()) == names
    assert [type(part) for part in net if isinstance(part, nn.BatchNorm2d)] == [WholeBatchNorm2d] * 2
    assert net[1] is norm and see_all_processes(net) is net


def test_see_all_processes__another_batch_norm_is_refused():
    with pytest.raises(ValueError, match="1 is a BatchNorm3d, which cannot see"):
        see_all_processes(nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm3d(3)))


def estimated(net, batches):
    """fvcore's way: each batch's statistics by a momentum of 1, Bessel's correction undone, weighed by pixels."""
    norms = [part for part in net if isinstance(part, nn.BatchNorm2d)]
    counts, means, squares = [], [[] for _ in norms], [[] for _ in norms]
    for norm in norms:
        norm.momentum = 1.0
    for images in batches:
        net(images)
        count = images.numel() // images.shape[1]
        counts.append(count)
        for number, norm in enumerate(norms):
            mean = norm.running_mean.clone()
            means[number].append(mean * count)
            squares[number].append((norm.running_var * (count - 1) / count + mean**2) * count)
    found = [(sum(m) / sum(counts), sum(s) / sum(counts)) for m, s in zip(means, squares, strict=True)]
    return [(mean, square - mean**2) for mean, square in found]


def test_statistics_anew__are_those_of_all_batches_by_the_weights_as_they_are():
    net = see_all_processes(network())
    kept = [parameter.clone() for parameter in net.parameters()]
    with statistics_anew(net), torch.no_grad():
        for images in parts():
            net(images)
    for norm, (mean, variance) in zip((net[1], net[4]), estimated(network(), parts()), strict=True):
        torch.testing.assert_close(norm.running_mean, mean, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(norm.running_var, variance, rtol=1e-9, atol=1e-9)
    # The first sees what does not hang on batches: the statistics of the whole data.
    pixels = net[0](in_a_row(parts())).transpose(0, 1).flatten(1)
    torch.testing.assert_close(net[1].running_mean, pixels.mean(1), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(net[1].running_var, pixels.var(1, correction=0), rtol=1e-9, atol=1e-9)
    assert all(torch.equal(a, b) for a, b in zip(kept, net.parameters(), strict=True))
    assert not net[1]._forward_pre_hooks


def test_statistics_anew__two_processes_hold_those_of_one(monkeypatch):
    def work(part):
        net = see_all_processes(network())
        with statistics_anew(net), torch.no_grad():
            net(part)
        return torch.cat([buffer.flatten().double() for name, buffer in net.named_buffers() if "running" in name])

    images = parts()
    first, second = two_processes(monkeypatch, lambda me: work(images[me]))
    assert torch.equal(first, second)
    torch.testing.assert_close(first, work(in_a_row(images)), rtol=1e-9, atol=1e-9)


def test_statistics_anew__keeps_what_nothing_went_through_and_what_broke_off():
    net = see_all_processes(network())
    with statistics_anew(net):
        pass
    assert not net[1].running_mean.any() and (net[1].running_var == 1).all()
    with pytest.raises(RuntimeError), statistics_anew(net.eval()):
        net(parts()[0])
        raise RuntimeError
    assert not net[1].running_mean.any() and not net[1]._forward_pre_hooks
