"""`python -m packer`."""

from packer._cli import main

if __name__ == "__main__":  # processes that are spawned import this module too
    main()
