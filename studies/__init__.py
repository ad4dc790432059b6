"""Studies of papers, each a folder with a script: `python -m studies.NAME --help`."""

import sys

try:
    import torch as torch
except ImportError:
    print("studies need PyTorch: pip install 'vocable[train]'", file=sys.stderr)
    sys.exit(2)
