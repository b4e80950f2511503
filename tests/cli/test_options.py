"""Options that several commands have."""

from lingraft.cli.options import parse_images


def test_numbers_of_images() -> None:
    assert [parse_images(text) for text in ("7", "3:9", ":4", "5:", "all")] == [
        slice(7),
        slice(3, 9),
        slice(0, 4),
        slice(5, None),
        slice(None),
    ]
