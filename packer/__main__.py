"""`python -m packer`."""

from packer.cli import main

main()
