"""Where a training loop's time goes: how long each step waits for data, what the data wait for, what would help."""
