"""`python -m lingraft` is the command line."""

from lingraft.cli import main

if __name__ == "__main__":
    main()
