"""Every pooling in loops and plain formulas: (pooling, one map of `channel y x`) -> its vector.

A pooling's twin has its name; the defaults of the twin are the values that both are compared with.
"""

import math

import torch
from torch.nn.functional import gelu, linear


def places(image):
    return image.flatten(1).T


def gap(pool, image):
    return torch.stack([sum(channel) / len(channel) for channel in image.flatten(1)])


def gmp(pool, image):
    return torch.stack([max(channel) for channel in image.flatten(1)])


def gemean(pool, image, p=3.0):
    means = [sum(max(v, 1e-6) ** p for v in channel) / len(channel) for channel in image.flatten(1).tolist()]
    return torch.tensor([mean ** (1 / p) for mean in means], dtype=image.dtype)


def gemax(pool, image, ridge=0.7):
    """The primal form, (F F' + ridge I)^-1 F 1."""
    f = image.flatten(1)
    return torch.linalg.inv(f @ f.T + ridge * torch.eye(len(f))) @ f.sum(1)


def weights_of(pool, image):
    return pool.selection(image[None])[0].flatten()


def gsp(pool, image, prototypes=4, mu=0.3, epsilon=5.0):
    return sum(weight * place for weight, place in zip(weights_of(pool, image), places(image), strict=True))


def gap_gmp(pool, image):
    return gap(pool, image) + gmp(pool, image)


def gmp_gsp(pool, image, prototypes=4, mu=0.3, epsilon=5.0):
    return gmp(pool, image) + gsp(pool, image)


def gsp_gmp(pool, image, prototypes=4, mu=0.3, epsilon=5.0):
    return gmp(pool, scaled(pool, image))


def gemean_gsp(pool, image, prototypes=4, mu=0.3, epsilon=5.0, p=3.0):
    return gemean(pool, scaled(pool, image), p)


def scaled(pool, image):
    return image * image[0].numel() * weights_of(pool, image).view_as(image[0])


def cbam(pool, image, reduction=2, kernel=3):
    first, second = pool.channel[0].weight, pool.channel[2].weight
    gate = torch.sigmoid(sum(second @ (first @ each).relu() for each in (image.mean((1, 2)), image.amax((1, 2)))))
    gated = image * gate[:, None, None]
    total, (height, width) = 0, image.shape[1:]
    for y in range(height):
        for x in range(width):
            score = 0.0
            for dy in (-1, 0, 1):
                for dx in (-1, 0, 1):
                    if 0 <= y + dy < height and 0 <= x + dx < width:
                        seen, weight = gated[:, y + dy, x + dx], pool.spatial.weight[0, :, dy + 1, dx + 1]
                        score = score + weight[0] * seen.max() + weight[1] * seen.mean()
            total = total + torch.sigmoid(score) * gated[:, y, x]
    return total / (height * width)


def crow(pool, image):
    positive = [[max(0.0, v) for v in channel] for channel in image.flatten(1).tolist()]
    totals = [sum(column) for column in zip(*positive, strict=True)]
    norm = math.sqrt(sum(total**2 for total in totals))
    common = [sum(1 / (1 + math.exp(-v)) for v in channel) / len(channel) for channel in positive]
    vector = []
    for channel, rate in zip(positive, common, strict=True):
        summed = sum(math.sqrt(t / norm) * v for t, v in zip(totals, channel, strict=True)) / len(channel)
        vector.append(summed * math.log(sum(common) / rate))
    return torch.tensor(vector, dtype=image.dtype)


def delf(pool, image, hidden=6):
    first, second, total = pool.score[0], pool.score[2], 0
    for place in places(image):
        units = (first.weight[:, :, 0, 0] @ place + first.bias).relu()
        total = total + torch.log1p((second.weight[0, :, 0, 0] @ units + second.bias).exp()) * place
    return total / len(places(image))


def second_order_gate(gate, rows):
    """Each row of the covariance has filters of its own."""
    normed = torch.cov(rows, correction=0) / (1 + gate.norm.eps) ** 0.5
    filters = gate.row.weight[:, 0, 0].view(len(rows), 4, -1)
    hidden = torch.stack([w @ row for row, four in zip(normed, filters, strict=True) for w in four]) + gate.row.bias
    return torch.sigmoid(gate.mix(hidden))


def gsop(pool, image, attention=4, grid=3):
    """For a map of the grid's size."""
    channel = second_order_gate(pool.channel_gate, pool.channels_in(image[None])[0].flatten(1))
    place = second_order_gate(pool.place_gate, pool.places_in(image[None])[0].flatten(1).T)
    larger = [torch.maximum(f * channel, f.relu() * gate) for f, gate in zip(places(image), place, strict=True)]
    return sum(larger) / len(larger)


def netvlad(pool, image, width=2, centres=3):
    sums = torch.zeros_like(pool.centres)
    for place in places(image):
        feature = pool.project.weight[:, :, 0, 0] @ place
        share = (pool.assign.weight[:, :, 0, 0] @ feature + pool.assign.bias).softmax(0)
        sums = sums + torch.stack([s * (feature - c) for s, c in zip(share, pool.centres, strict=True)])
    return torch.cat([row / row.norm() for row in sums])


def otp(pool, image, width=2, prototypes=3, epsilon=2.0, iterations=10):
    """Plain Sinkhorn steps on distances in the unit ball."""
    features = places(image) @ pool.project.weight[:, :, 0, 0].T
    inside = [rows / rows.norm(dim=1, keepdim=True).clamp_min(1) for rows in (pool.prototypes, features)]
    kernel = (-epsilon * (inside[0][:, None] - inside[1]).norm(dim=2)).exp()
    u = torch.ones_like(kernel[:, 0])
    for _ in range(iterations):
        v = 1 / len(features) / (kernel.T @ u)
        u = 1 / prototypes / (kernel @ v)
    v = 1 / len(features) / (kernel.T @ u)
    vectors = [sum(u[i] * kernel[i, j] * v[j] * f for j, f in enumerate(features)) for i in range(prototypes)]
    return torch.cat(vectors) * prototypes**0.5


def solar(pool, image, reduction=2, p=3.0):
    query, key, value = (places(part(image[None])[0]) for part in (pool.query, pool.key, pool.value))
    rows = []
    for feature, q in zip(places(image), query, strict=True):
        attention = torch.stack([q @ k / len(q) ** 0.5 for k in key]).softmax(0)
        seen = sum(a * v for a, v in zip(attention, value, strict=True))
        rows.append(feature + pool.out.weight[:, :, 0, 0] @ seen + pool.out.bias)
    return gemean(pool, torch.stack(rows).T[:, :, None], p)


def t_smk(pool, image, window=3):
    total = 0
    for y in range(image.shape[1]):
        for x in range(image.shape[2]):
            near = image[:, max(0, y - 1) : y + 2, max(0, x - 1) : x + 2]
            total = total + image[:, y, x].norm() * near.mean((1, 2))
    return total / image[0].numel()


def tfm(pool, image, width=8, layers=2, heads=2):
    """Pre-norm self-attention and a GELU network, one head at a time."""
    tokens = torch.cat([pool.token[None], linear(places(image), pool.project.weight[:, :, 0, 0], pool.project.bias)])
    for layer in pool.layers:
        attention, seen = layer.self_attn, []
        parts = linear(layer.norm1(tokens), attention.in_proj_weight, attention.in_proj_bias).chunk(3, -1)
        for q, k, v in zip(*(part.chunk(heads, 1) for part in parts), strict=True):
            seen.append((q @ k.T / q.shape[1] ** 0.5).softmax(1) @ v)
        tokens = tokens + attention.out_proj(torch.cat(seen, 1))
        tokens = tokens + layer.linear2(gelu(layer.linear1(layer.norm2(tokens))))
    return pool.norm(tokens[0])


def weldon(pool, image, highest=3, lowest=2):
    channels = [sorted(channel) for channel in image.flatten(1).tolist()]
    return torch.tensor([sum(v[-highest:]) + sum(v[:lowest]) for v in channels], dtype=image.dtype)
