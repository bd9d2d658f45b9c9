"""`python -m constrint.tune` is `constrint tune`: what a package's post-install step calls with `--install`."""

import sys

from constrint.cli.app import main

if __name__ == "__main__":
    sys.argv.insert(1, "tune")
    main()
