"""What a user asks before and while training: how long, how large, how fast, and what it is that waits.

What a conversion gives and takes, learnt from trials with some of its images.

Where a training loop's time goes: how long each step waits for data, what the data wait for, what would help.
"""
