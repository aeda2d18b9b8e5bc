"""What a run found, on the page of the main report: which numbers and pictures it shows, and in which words."""
