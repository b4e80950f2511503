"""Text on its way to a terminal: what is of unknown origin, and durations."""


def printable(text: object) -> str:
    """Text in which nothing moves the cursor, hides or turns around what is written: such characters are spelled out.

    Control characters and escape sequences, line breaks, invisible characters, those that change the direction of
    writing, and what is no character at all (in names of files that are not UTF-8) become \\x1b, \\u202e and the like.
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def duration(seconds: float) -> str:
    """For people: 90 s, 12 min, 14.7 h, 3 days."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"
