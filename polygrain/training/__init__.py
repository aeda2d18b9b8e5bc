"""The training loop of all stages that train: epochs with checkpoints that outlive a kill, and their history."""
