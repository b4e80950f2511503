"""Text of unknown origin on its way to a terminal."""


def printable(text: object) -> str:
    """Text in which nothing moves the cursor, hides or turns around what is written: such characters are spelled out.

    Control characters and escape sequences, line breaks, invisible characters, those that change the direction of
    writing, and what is no character at all (in names of files that are not UTF-8) become \\x1b, \\u202e and the like.
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))
