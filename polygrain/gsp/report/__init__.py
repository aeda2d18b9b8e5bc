"""What the pages of metric learning show: tables beside the published ones, curves, where poolings look."""
