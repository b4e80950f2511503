"""What a recipe at a scale comes down to: cells of a table, and the stages that fill them."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lingraft.errors import LingraftError
from lingraft.names import short_name
from lingraft.work.experiments.recipe import Network, Options, Recipe, Row, Scale
from lingraft.work.experiments.stage import MAKES_RUN, Stage


@dataclass(frozen=True)
class Cell:
    """One network made in one way with one seed: its run, and what is measured of it."""

    network: Network
    row: Row
    #: of a row that varies an option
    value: float | None
    seed: int
    run: Stage
    measures: tuple[Stage, ...]

    @property
    def name(self) -> str:
        """The row as it is printed."""
        return self.row.name if self.value is None else f"{self.row.name} ({self.value:g})"

    @property
    def stages(self) -> list[Stage]:
        """All that fills it, each after those it needs."""
        return [stage for last in (self.run, *self.measures) for stage in with_parents(last)]


@dataclass(frozen=True)
class Plan:
    """All cells of a recipe at a scale."""

    name: str
    recipe: Recipe
    scale_name: str
    scale: Scale
    seeds: int
    cells: tuple[Cell, ...]

    @property
    def stages(self) -> list[Stage]:
        """Every stage once, each after those it needs."""
        found: dict[tuple[str, str], Stage] = {}
        for cell in self.cells:
            for stage in cell.stages:
                found.setdefault((stage.command, stage.key), stage)
        for stage in self.corners.values():
            found[stage.command, stage.key] = stage
        return list(found.values())

    @property
    def corners(self) -> dict[str, Stage]:
        """Of a recipe on corner cases: name of a network → the stage that looks for them, among all its runs."""
        found = {}
        for network in {cell.network.in_paper: None for cell in self.cells} if self.recipe.corners else ():
            ours = [cell for cell in self.cells if cell.network.in_paper == network]
            plain = [cell.run for cell in ours if cell.row.graft is None]
            grafted = [cell.run for cell in ours if cell.row.graft is not None]
            verify = self.scale.verify
            options = {**verify, "verify": verify["images"], "regular": verify["images"], "every-run": True}
            del options["images"]
            found[network] = Stage("corners", options, plain[0], tuple(plain[1:]), tuple(grafted))
        return found

    @property
    def minutes(self) -> float:
        """About how long all this takes on two cores."""
        return sum(minutes(stage, self.scale) for stage in self.stages)


def make_plan(
    name: str,
    recipe: Recipe,
    scale_name: str,
    scale: Scale,
    seeds: int = 1,
    networks: Sequence[str] = (),
    rows: Sequence[str] = (),
) -> Plan:
    """The cells of a recipe; `networks` and `rows` keep those whose name is, or else contains, one of these texts."""
    if seeds < 1:
        raise LingraftError(f"--seeds must be at least 1, not {seeds}.")
    scale = scale.model_copy(update={"verify": {**scale.verify, **recipe.verify_at.get(scale_name, {})}})
    cells = []
    wanted_rows = matching([row.name for row in recipe.rows], rows)
    wanted_networks = matching([network.name for network in recipe.networks_of(scale_name)], networks)
    for network in recipe.networks_of(scale_name):
        for row in recipe.rows:
            allowed: Collection[str] = row.only.get(scale_name, [network.name])
            if network.name in allowed and network.name in wanted_networks and row.name in wanted_rows:
                for value in row.vary.values if row.vary else [None]:
                    for seed in range(max(seeds, recipe.corners)):
                        cells.append(make_cell(recipe, scale.network(network), row, value, seed, scale))
    if recipe.corners and len({cell.row.graft is None for cell in cells}) == 1:
        raise LingraftError(f"recipe {name!r} compares plain with grafted networks. Keep rows of both kinds.")
    if not cells:
        known = ", ".join(network.name for network in recipe.networks_of(scale_name))
        raise LingraftError(
            f"recipe {name!r} has nothing that fits at this scale. Its networks are {known};"
            f" its rows {', '.join(row.name for row in recipe.rows)}."
        )
    return Plan(name, recipe, scale_name, scale, max(seeds, recipe.corners), tuple(cells))


def matching(names: Sequence[str], wanted: Sequence[str]) -> set[str]:
    """The names that a text of `wanted` means: the one that it is, else all that contain it. Only words count."""
    if not wanted:
        return set(names)
    plain = {name: _words(name) for name in names}
    found = set()
    for text in map(_words, wanted):
        found |= {name for name in names if plain[name] == text} or {name for name in names if text in plain[name]}
    return found


def _words(text: str) -> str:
    """Letters and digits in small letters, whatever stands between them one blank: grafting-50 for Grafting 50 %."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def make_cell(recipe: Recipe, network: Network, row: Row, value: float | None, seed: int, scale: Scale) -> Cell:
    """A row of a recipe for one network, one value of the option that it varies, and one seed."""
    changes = {name: _filled(text, network) for name, text in row.train.items()}
    model, method = str(changes.pop("model", network.model)), changes.get("method")
    run = Stage(
        "train",
        {
            "data": network.data,
            "model": model,
            "eps": network.eps,
            **scale.train,
            **_changes_for(
                scale.train_on, network.data, f"{network.data} {network.eps}", model, method, f"{network.data} {method}"
            ),
            **changes,
            "seed": seed,
        },
        title=f"{short_name(model)}-{short_name(network.data)}",
    )
    if row.graft is not None:
        varied = {row.vary.option: value} if row.vary and value is not None else {}
        by = changes.get("optimizer")
        on = _changes_for(scale.graft_on, network.data, model, method, f"{method} {by}")
        options = {**row.graft, **varied, **scale.graft, **on, "seed": seed}
        percent = round(100 * float(options["ratio"]))
        run = Stage("graft", options, run, title=f"{run.title}-{options['method']}-{percent}")
    chosen = {"verify": {**scale.verify, **network.verify}, "score": {**scale.score, **recipe.score}}
    measures = tuple(Stage(command, chosen.get(command, getattr(scale, command)), run) for command in recipe.measure)
    return Cell(network, row, value, seed, run, measures)


def _changes_for(changes: Mapping[str, Options], *names: object) -> Options:
    """What the scale says of these names; of two that change the same option, the later one."""
    return {option: value for name in names for option, value in changes.get(str(name), {}).items()}


def _filled(value: str | int | float | bool, network: Network) -> str | int | float | bool:
    return value.replace("{model}", network.model) if isinstance(value, str) else value


def with_parents(stage: Stage) -> Iterator[Stage]:
    """The stages that a stage starts from, first things first, and itself."""
    if stage.parent is not None:
        yield from with_parents(stage.parent)
    yield stage


def minutes(stage: Stage, scale: Scale) -> float:
    """About how long a stage takes on two cores."""
    first = stage
    while first.parent is not None:
        first = first.parent
    model = str(first.options["model"])
    epoch = scale.minutes.get(model, 1.0)
    bounding = scale.bounding.get(model, 0.5) / 60
    if stage.command in MAKES_RUN:
        # half of a step is GradAlign, which fine-tuning takes over; False: as the command has it
        share = first.options.get("grad-align", False)
        training = epoch * (0.5 if share == 0 and share is not False else 1.0) * int(stage.options.get("epochs", 200))
        # neurons are bounded to choose some, and on as many test images before and after
        bounded = 3 * int(stage.options.get("bound-images", 100)) if stage.command == "graft" else 0
        return training + bounded * bounding
    if stage.command in ("verify", "corners"):
        # a third of the images runs into the limit, on two workers
        images = sum(int(stage.options.get(name, 0)) for name in ("images", "verify", "regular"))
        runs = 1 + len(stage.others) + len(stage.against)
        return runs * images * float(stage.options["timeout"]) / 60 / 3 / 2
    return epoch
