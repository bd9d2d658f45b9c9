"""`python -m constrint`: the command, where its script is not on the PATH."""

from constrint.cli.entry import main

if __name__ == "__main__":
    main()
