"""What a conversion gives and takes, learnt from trials with some of its images."""
