"""The one error type of lingraft."""


class LingraftError(Exception):
    """Something the user can mend. The message says what was wrong and what to do about it."""
