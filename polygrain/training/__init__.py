"""What all training shares: epochs with checkpoints that outlive a kill, and their history.

No loss and no network is known here.
"""
