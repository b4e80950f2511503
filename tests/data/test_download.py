"""One file over a bad line: resumed, retried, checked, and never half there."""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lingraft import LingraftError
from lingraft.data.download import Patience, download

CONTENT = bytes(os.urandom(1000)) * 700  # 700 kB: more than one chunk
MD5 = hashlib.md5(CONTENT).hexdigest()
QUICK = Patience(stall=0.3, rounds=3, pause=0.01)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "folder" / "file.bin"


@pytest.fixture(autouse=True)
def file(web) -> None:
    web.files["file.bin"] = CONTENT


def get(web, target: Path, patience: Patience = QUICK, **changed) -> list[int]:
    reports: list[int] = []
    options = {"size": len(CONTENT), "md5": MD5} | changed
    download([web.address + "file.bin"], target, report=reports.append, patience=patience, **options)
    return reports


def part_of(target: Path) -> Path:
    return target.with_name("file.bin.part")


def test_downloads(web, target: Path):
    reports = get(web, target)
    assert target.read_bytes() == CONTENT
    assert not part_of(target).exists()
    assert reports == sorted(reports)
    assert reports[0] == 0
    assert reports[-1] == len(CONTENT)
    assert web.requests == [("/file.bin", None)]


def test_goes_on_after_a_cut(web, target: Path):
    web.script = [web.truncate(100_000), web.truncate(200_000)]
    get(web, target)
    assert target.read_bytes() == CONTENT
    assert [wanted for _, wanted in web.requests] == [None, "bytes=100000-", "bytes=300000-"]


def test_any_number_of_cuts_is_fine_as_long_as_something_comes(web, target: Path):
    web.script = [web.truncate(50_000)] * 13  # many more than the 3 rounds without success
    get(web, target)
    assert target.read_bytes() == CONTENT
    assert len(web.requests) == 14


def test_goes_on_after_a_stall(web, target: Path):
    web.script = [web.stall(123_456)]
    start = time.monotonic()
    get(web, target)
    assert target.read_bytes() == CONTENT
    assert [wanted for _, wanted in web.requests] == [None, "bytes=123456-"]
    assert 0.3 <= time.monotonic() - start < 3


@pytest.mark.parametrize("kind", ["silent", "hang_up", "corrupt"])
def test_tries_again(web, target: Path, kind: str):
    web.script = [getattr(web, kind)]
    get(web, target)
    assert target.read_bytes() == CONTENT
    assert len(web.requests) == 2


@pytest.mark.parametrize("code", [500, 502, 503, 429, 408])
def test_tries_again_after_a_passing_error(web, target: Path, code: int):
    web.script = [web.status(code)] * 2
    get(web, target)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("code", [400, 403, 404, 410])
def test_a_final_error_is_not_asked_twice(web, target: Path, code: int):
    web.script = [web.status(code)] * 5
    with pytest.raises(LingraftError, match=f"HTTP {code}"):
        get(web, target)
    assert len(web.requests) == 1
    assert not target.exists()


def test_a_server_that_cannot_resume_starts_over(web, target: Path):
    web.script = [web.truncate(400_000), web.ignore_range]
    reports = get(web, target)
    assert target.read_bytes() == CONTENT
    assert reports[-1] == len(CONTENT)
    assert max(reports) == len(CONTENT)  # what was thrown away is not counted


def test_a_server_that_never_gets_far_is_given_up(web, target: Path):
    web.script = [web.ignore_range_and_truncate(1000)] * 100
    with pytest.raises(LingraftError, match="ended after 1,000 of 700,000 bytes"):
        get(web, target)
    assert len(web.requests) <= 5


def test_another_range_than_asked_for_is_not_glued_on(web, target: Path):
    web.script = [web.truncate(1000), web.other_range]
    with pytest.raises(LingraftError, match="another part of the file"):
        get(web, target)
    assert part_of(target).read_bytes() == CONTENT[:1000]


def test_corruption_is_never_let_through(web, target: Path):
    web.script = [web.corrupt] * 100
    with pytest.raises(LingraftError) as caught:
        get(web, target)
    assert f"instead of {MD5}" in str(caught.value)
    assert not target.exists()
    assert not part_of(target).exists()
    assert len(web.requests) == QUICK.rounds


def test_what_was_there_before_stays_until_the_new_file_is_whole(web, target: Path):
    target.parent.mkdir(parents=True)
    target.write_bytes(b"old")
    web.script = [web.corrupt] * 3
    with pytest.raises(LingraftError):
        get(web, target)
    assert target.read_bytes() == b"old"
    get(web, target)
    assert target.read_bytes() == CONTENT


def test_a_later_call_goes_on_where_an_earlier_one_stopped(web, target: Path):
    web.script = [web.truncate(300_000), *[web.status(503)] * 3]
    with pytest.raises(LingraftError, match="300,000 of 700,000 bytes are kept"):
        get(web, target)
    web.requests.clear()
    reports = get(web, target)
    assert reports[0] == 300_000
    assert target.read_bytes() == CONTENT
    assert web.requests == [("/file.bin", "bytes=300000-")]


@pytest.mark.parametrize("length", [1, 5_000, 699_999, 700_000, 700_001, 900_000])
def test_a_wrong_part_is_found_out(web, target: Path, length: int):
    target.parent.mkdir(parents=True)
    part_of(target).write_bytes(bytes(length))
    get(web, target)
    assert target.read_bytes() == CONTENT


def test_a_whole_part_needs_no_server(web, target: Path):
    target.parent.mkdir(parents=True)
    part_of(target).write_bytes(CONTENT)
    get(web, target)
    assert target.read_bytes() == CONTENT
    assert web.requests == []


def test_a_file_of_another_size_is_refused_at_once(web, target: Path):
    web.files["file.bin"] = CONTENT + b"more"
    with pytest.raises(LingraftError, match="offers 700004 bytes, and the published file has 700,000"):
        get(web, target)
    assert not part_of(target).exists()


def test_a_part_longer_than_the_file_there(web, target: Path):
    web.files["file.bin"] = CONTENT[:1000]
    target.parent.mkdir(parents=True)
    part_of(target).write_bytes(CONTENT[:2000])
    with pytest.raises(LingraftError, match="offers 1000 bytes"):
        get(web, target)
    assert not target.exists()


def test_a_log_in_page_is_not_a_part(web, target: Path):
    web.script = [web.truncate(1000), web.page]
    with pytest.raises(LingraftError, match="offers 26 bytes"):
        get(web, target)
    assert part_of(target).read_bytes() == CONTENT[:1000]


def test_no_more_than_the_published_size_is_written(web, target: Path):
    web.script = [web.without_length]
    get(web, target)
    assert target.read_bytes() == CONTENT


def test_mirrors_are_tried_in_turn(web, target: Path):
    web.script = [web.status(404), web.truncate(1000), web.good]
    urls = [web.address + "first/file.bin", web.address + "second/file.bin"]
    download(urls, target, len(CONTENT), MD5, patience=QUICK)
    assert target.read_bytes() == CONTENT
    assert web.requests == [
        ("/first/file.bin", None),
        ("/second/file.bin", None),
        ("/second/file.bin", "bytes=1000-"),
    ]


def test_the_error_says_what_each_address_answered(web, target: Path):
    web.script = [web.status(404), *[web.status(500)] * 3]
    urls = [web.address + "first/file.bin", web.address + "second/file.bin"]
    with pytest.raises(LingraftError) as caught:
        download(urls, target, len(CONTENT), MD5, patience=QUICK)
    message = str(caught.value)
    for text in (f"{urls[0]}: HTTP 404", f"{urls[1]}: HTTP 500", "--from", str(target)):
        assert text in message


def test_nobody_there(target: Path, web):
    with pytest.raises(LingraftError, match="refused"):
        download(["http://127.0.0.1:9/file.bin"], target, 10, MD5, patience=QUICK)


def test_pauses_grow(web, target: Path):
    web.script = [web.status(503)] * 9
    start = time.monotonic()
    with pytest.raises(LingraftError):
        get(web, target, Patience(stall=1, rounds=4, pause=0.05))
    assert time.monotonic() - start >= 0.05 * (1 + 2 + 4)
    assert len(web.requests) == 4


def test_disk_full_is_said_before_anything_is_asked(web, target: Path, monkeypatch: pytest.MonkeyPatch):
    usage = shutil.disk_usage(target.parent.parent.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(LingraftError, match="Make room"):
        get(web, target)
    assert web.requests == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_disk_full_on_the_way(web, target: Path):
    target.parent.mkdir(parents=True)
    part_of(target).symlink_to("/dev/full")
    with pytest.raises(LingraftError, match="No space left"):
        get(web, target)
    assert len(web.requests) == 1  # another try would not help


def test_a_folder_that_cannot_be_made(web, tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(LingraftError, match=r"cannot write .*LINGRAFT_DATA"):
        get(web, tmp_path / "file" / "file.bin")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_that_may_not_be_written(web, tmp_path: Path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(LingraftError, match="Permission denied"):
            get(web, tmp_path / "file.bin")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.slow
def test_killed_on_the_way_it_goes_on(web, target: Path):
    web.script = [web.stall(600_000)]
    code = (
        "import sys; from pathlib import Path; from lingraft.data.download import download;"
        f"download([{web.address + 'file.bin'!r}], Path(sys.argv[1]), {len(CONTENT)}, {MD5!r})"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(target)])
    try:
        deadline = time.monotonic() + 30
        while not (part_of(target).exists() and part_of(target).stat().st_size == 600_000):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    assert not target.exists()
    get(web, target)
    assert target.read_bytes() == CONTENT
    assert web.requests[-1] == ("/file.bin", "bytes=600000-")
