"""`python -m vocable`."""

import sys

from vocable.cli import main

if __name__ == "__main__":
    sys.exit(main())
