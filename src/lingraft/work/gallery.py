"""The networks of the gallery with what was measured of them."""

from typing import Any

from lingraft.report.study import explained
from lingraft.runs import Run
from lingraft.runs.gallery import NETWORKS, PREFIX, packed


def gallery() -> list[dict[str, Any]]:
    """Trained networks that can be loaded by name, with their figures. JSON-able.

    `lingraft.load("gallery:NAME")` gives the model, and whatever takes a run folder takes that name. Of a network that
    has still to be fetched only its size is known here.
    """
    return [_about(name) for name in NETWORKS]


def _about(name: str) -> dict[str, Any]:
    network, folder = NETWORKS[name], packed(name)
    about: dict[str, Any] = {"name": PREFIX + name, "title": network.title}
    if folder is None:
        assert network.source is not None
        return {**about, "bytes": sum(file.size for file in network.source.files), "here": False}
    run = Run(folder)
    with explained():
        description, summary = run.describe(), run.summary()
        (attacked,), (verified,) = summary.evaluation.values(), summary.verification.values()
    return {
        **about,
        "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        "here": True,
        "network": description.architecture,
        "data": description.data,
        "eps": description.eps,
        "sa": attacked.sa,
        "images_sa": attacked.images_sa,
        "ra": attacked.ra,
        "images_ra": attacked.images,
        "unr": verified.unr,
        "va": verified.va,
        "images_va": verified.images,
        "limit": verified.as_dict()["timeout"],
        "commands": [record["command"] for record in run.commands()],
    }
