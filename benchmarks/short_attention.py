"""Short sequences on a CPU: attention by plain products (`residual_blocks.build_network`) against timm's fused one."""

import torch
from torch import nn

from benchmarks.measure import compare
from polygrain.compute import device
from polygrain.encoder.networks import build_network

SHIPPED = {"img_size": 48, "patch_size": 8, "depth": 6}  # 36 patches


def stepper(network: nn.Module, images: torch.Tensor, bfloat16: bool):
    """Forward and backward, whose gradients it leaves: what a training step is, save the optimiser."""
    direction = torch.randn(len(images), network.num_features, generator=torch.Generator().manual_seed(0))

    def step() -> None:
        network.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            features = network(images)
        (features.float() * direction).mean().backward()

    return step


if __name__ == "__main__":
    if torch.cuda.is_available():
        raise SystemExit("on CUDA the fused attention is used at any length; nothing to compare")
    torch.manual_seed(0)
    plain = build_network("vit_tiny_patch16_224", SHIPPED)
    fused = build_network("vit_tiny_patch16_224", SHIPPED)
    fused.load_state_dict(plain.state_dict())
    for block in fused.blocks:
        block.attn.fused_attn = True
    images = torch.rand(128, 3, 48, 48)
    for bfloat16 in (False, True) if device.has_bfloat16(torch.device("cpu")) else (False,):
        ours, peer = stepper(plain, images, bfloat16), stepper(fused, images, bfloat16)
        ours(), peer()
        pairs = [(a.grad, b.grad) for a, b in zip(plain.parameters(), fused.parameters(), strict=True)]
        difference = max(float((a - b).norm() / b.norm()) for a, b in pairs if b.norm() > 0)
        assert difference < (0.1 if bfloat16 else 1e-4), difference
        precision = "bfloat16" if bfloat16 else "float32"
        compare(f"forward and backward, 128 images, 36 patches, {precision}", ours, peer, 8, peer="fused attention",
                equality=f"gradients within {difference:.0e}")  # fmt: skip
