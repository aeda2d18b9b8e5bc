"""What a hostile file, value, remote or neighbour on the machine can do: a file per campaign, one table of verdicts."""
