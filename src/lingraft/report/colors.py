"""The colours of all pictures: in files the light ones, on the page variables that follow light and dark mode."""

#: name → (on light paper, on a dark screen); each has a contrast of at least 3 to 1 with its background
COLORS: dict[str, tuple[str, str]] = {
    "ink": ("#1d2631", "#e4e8ee"),
    "faint": ("#d9dee5", "#36404d"),
    "gray": ("#76808d", "#97a1ae"),
    "blue": ("#2364aa", "#6fb1f2"),
    "orange": ("#bd5a10", "#f3a45f"),
    "green": ("#1b7b52", "#57c796"),
    "purple": ("#7746a6", "#c19bee"),
    "red": ("#b4322d", "#f28c82"),
    "teal": ("#0f7480", "#53c3d0"),
    "olive": ("#6e6a0e", "#c7c14f"),
}

INK, FAINT, GRAY = (COLORS[name][0] for name in ("ink", "faint", "gray"))

#: One for each run, in this order, the same in every picture.
SERIES = [COLORS[name][0] for name in ("gray", "blue", "orange", "green", "purple", "teal", "red", "olive")]

#: For pictures of points, which cannot change with the mode: seen well on light and on dark.
POINT, STRONG_POINT = "#8b95a3", "#e0761f"


def series(i: int) -> str:
    """The colour of run `i`."""
    return SERIES[i % len(SERIES)]
