"""The memory of a program that a test starts."""

PEAK = """
def peak():
    import resource, sys
    if sys.platform == "linux":  # where getrusage counts the memory of the process that started this one, too
        with open("/proc/self/status") as status:
            return int(status.read().split("VmHWM:")[1].split()[0]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
"""
"""Python's code of a function that returns how many bytes of memory this process took at most."""
