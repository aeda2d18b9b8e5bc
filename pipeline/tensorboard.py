"""Curves that TensorBoard reads, a run for each stage: `tensorboard --logdir FOLDER` shows them while they grow."""

from pathlib import Path

from pipeline.progress import Point


def ready(folder: Path) -> Path:
    """The folder, made; ValueError before a run starts where nothing can be written."""
    try:
        import tensorboardX  # noqa: F401
    except ImportError as error:
        raise ValueError("--tensorboard needs tensorboardX: pip install tensorboardX") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--tensorboard {folder} cannot be made a folder: {error.strerror}") from error
    return folder.resolve()


class Writer:
    """The curves of one stage, in FOLDER/<stage>. Steps are items, batches for example, since the first round began."""

    def __init__(self, folder: Path, stage: str) -> None:
        self._folder, self._writer = folder / stage, None

    def add(self, values: dict[str, Point]) -> None:
        """Values by name, as a line told them; they are on the disk some seconds later."""
        if not values:
            return
        from tensorboardX import SummaryWriter

        if self._writer is None:
            # What an earlier run of the stage wrote from there on gives way.
            first = min(point.step for point in values.values())
            self._writer = SummaryWriter(str(self._folder), purge_step=first, flush_secs=1)
        for name, point in values.items():
            self._writer.add_scalar(name.replace(" ", "/"), point.value, point.step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
