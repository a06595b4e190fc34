"""What a person asks before and while training: how long, how large, how fast, and what it is that waits."""
