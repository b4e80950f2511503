"""The table of a reproduction as Markdown, CSV and LaTeX: our figures and the paper's, side by side."""

import csv
import io
import shlex
from collections.abc import Sequence

from lingraft.report.table import escaped
from lingraft.runs.summary import VERDICTS
from lingraft.work.experiments.plan import Plan
from lingraft.work.experiments.recipe import COLUMNS
from lingraft.work.experiments.results import Result

Lines = list[list[str]]


def by_network(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Heading → the rows of that network."""
    found: dict[str, list[Result]] = {}
    for result in results:
        network = result.network
        heading = f"{network.name}, ε = {network.eps}"
        if network.instead_of:
            heading += f" (in the paper: {network.instead_of})"
        found.setdefault(heading, []).append(result)
    return found


def show(result: Result, column: str) -> str:
    """Mean, ± deviation where there are several seeds, of VA also its interval; "–" for what was not measured."""
    if not result.runs:
        return "not run"
    mean, deviation = result.mean(column), result.deviation(column)
    if mean is None:
        return "–"
    if column == "va" and result.va_interval is not None:
        deviated = "" if deviation is None else f" ± {deviation:.2f}"
        return f"{mean:.2f}{deviated} [{result.va_interval[0]:.0f}, {result.va_interval[1]:.0f}]"
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} ± {deviation:.2f}"


def show_paper(result: Result, column: str) -> str:
    """The paper's figure, or "–" where it has none."""
    value = result.paper[column]
    return "–" if value is None else f"{value:.2f}"


def lines(results: Sequence[Result], columns: Sequence[str]) -> Lines:
    """Heading and rows of one network; where rows have different numbers of seeds, they say how many."""
    differ = len({len(result.runs) for result in results if result.runs}) > 1
    seeds = [f", {len(result.runs)} seeds" if differ and len(result.runs) > 1 else "" for result in results]
    heading = ["", *(text for name in columns for text in (COLUMNS[name][0], "paper"))]
    return [heading] + [
        [result.name + suffix, *(text for name in columns for text in (show(result, name), show_paper(result, name)))]
        for result, suffix in zip(results, seeds, strict=True)
    ]


def markdown(plan: Plan, results: Sequence[Result]) -> str:
    """One table a network, under a line that says at which scale ours were made."""
    recipe = plan.recipe
    most = max(len(result.runs) for result in results)
    seeds = "one seed" if most == 1 else "mean ± standard deviation over seeds"
    text = [
        f"# {recipe.title}",
        "",
        f"The paper: {recipe.paper}. {recipe.about.strip()}",
        "",
        f"Ours: scale **{plan.scale_name}** ({plan.scale.about}), here {plan.scale.verify['timeout']} s to verify each"
        f" image, {seeds}. The paper's: 200 epochs of training, 100 of fine-tuning, 1,000 images, 300 s for each image,"
        " on a GPU.",
    ]
    for heading, found in by_network(results).items() if recipe.columns else ():
        head, *body = lines(found, recipe.columns)
        images = {result.settings["images"]: None for result in found if "images" in result.settings}
        counted = f", {', '.join(map(str, images))} images verified" if images else ""
        text += ["", f"## {heading}{counted}", "", *_table(head, body), *_verdicts(found), *_comparisons(found)]
        text += _not_run(plan, found)
    if recipe.columns:
        text += ["", *(f"- {COLUMNS[name][0]}: {COLUMNS[name][1]}" for name in recipe.columns)]
    return "\n".join(text) + "\n"


def _table(head: Sequence[str], body: Lines) -> list[str]:
    return [_piped(head), "| --- |" + " ---: |" * (len(head) - 1), *map(_piped, body)]


def _verdicts(results: Sequence[Result]) -> list[str]:
    """How many images ended how, row by row."""
    rows = [[result.name, *map(str, result.verdicts.values())] for result in results if result.verifications]
    return ["", *_table(["Images of all seeds", *VERDICTS], rows)] if rows else []


def _comparisons(results: Sequence[Result]) -> list[str]:
    """Each row against the one that the recipe compares with, on the same images."""
    pairs = [(result.name, result.comparison) for result in results if result.comparison is not None]
    if not pairs:
        return []
    other = pairs[0][1].other
    head = ["On the same images", "images", "both verify", "only it", f"only {other}", "p (McNemar, exact)"]
    rows = [
        [name, *map(str, (pair.images, pair.both, pair.only_this, pair.only_other)), f"{pair.p:.2g}"]
        for name, pair in pairs
    ]
    return ["", *_table(head, rows)]


def _not_run(plan: Plan, results: Sequence[Result]) -> list[str]:
    """The commands that would fill the rows without figures, and about how long each takes."""
    hours = {_command(plan, result): result.hours for result in results if result.hours is not None}
    return ["", *(f"- not run, about {left:.1f} h: `{command}`" for command, left in hours.items())] if hours else []


def _command(plan: Plan, result: Result) -> str:
    networks = plan.recipe.networks_of(plan.scale_name)
    network = next(each.name for each in networks if each.in_paper == result.network.in_paper)
    words = ["lingraft", "reproduce", plan.name, "--scale", plan.scale_name, "--network", network, "--row", result.row]
    return shlex.join(words)


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def comma_separated(plan: Plan, results: Sequence[Result]) -> str:
    """One line a network, row and column: ours (mean, deviation, seeds) and the paper's."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["network", "eps", "row", "column", "mean", "deviation", "seeds", "paper", "scale"])
    for result in results:
        for name in plan.recipe.columns:
            cells = [result.mean(name), result.deviation(name), len(result.runs), result.paper[name]]
            shown = ["" if cell is None else cell for cell in cells]
            writer.writerow([result.network.name, result.network.eps, result.name, name, *shown, plan.scale_name])
    return buffer.getvalue()


def latex(plan: Plan, results: Sequence[Result]) -> str:
    """One `tabular` a network; needs the package booktabs."""
    text = ["% needs \\usepackage{booktabs}"]
    for heading, found in by_network(results).items():
        head, *body = lines(found, plan.recipe.columns)
        text += [
            f"% {heading}; scale {plan.scale_name}",
            f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            "\\toprule",
            " & ".join(map(escaped, head)) + " \\\\",
            "\\midrule",
            *(" & ".join(map(escaped, row)) + " \\\\" for row in body),
            "\\bottomrule",
            "\\end{tabular}",
        ]
    return "\n".join(text) + "\n"
