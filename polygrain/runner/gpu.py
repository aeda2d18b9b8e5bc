"""The load of this process's GPU, as its driver reports it."""

import sys


def use() -> dict[str, float]:
    """Its load in percent and the memory taken on it in GiB, by all who use it; empty without a GPU at work here.

    Empty, too, where the driver cannot be asked or does not tell, as of a part of a GPU.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {}
    # Training goes on where these numbers cannot be read: NVML has an error of its own for every reason.
    try:
        import pynvml

        pynvml.nvmlInit()
        # By name: CUDA_VISIBLE_DEVICES gives the devices other numbers.
        name = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
        device = pynvml.nvmlDeviceGetHandleByUUID(name)
        load = pynvml.nvmlDeviceGetUtilizationRates(device).gpu
        taken = pynvml.nvmlDeviceGetMemoryInfo(device).used
    except Exception:
        return {}
    return {"gpu_percent": float(load), "gpu_gib": taken / 2**30}
