"""What the page says first: what grafting gained, and what it cost."""

from collections.abc import Sequence

from lingraft.report.study import Study, Verification
from lingraft.report.table import Row
from lingraft.runs.summary import proofs_in_words

#: Verdicts on images that are known not to be robust.
BROKEN = ("falsified", "misclassified")


def headline(studies: Sequence[Study]) -> list[str]:
    """The highest VA and what it was before grafting, then the price in SA, RA and images; [] without verdicts."""
    proven = [
        (study, verification, row)
        for study in studies
        for verification, row in zip(study.verifications, study.rows, strict=False)
    ]
    if not proven:
        return []
    # of equals a grafted one, whose price is to be told
    best, after, row = max(proven, key=lambda each: (each[2].va or 0.0, each[0].parent is not None))
    text = f"{row.va:.1%} of {row.images:,} images are proven robust in {best.name}"
    proofs = _proofs(row)
    for study, before, base in proven:
        if study is best.parent and (before.data, before.eps) == (after.data, after.eps):
            return [
                f"{text}; {base.va:.1%} in {base.run}, which it was grafted from.{proofs}",
                _price(base, row, before, after),
            ]
    return [f"{text}{_beside(row)}.{proofs}"]


def _proofs(row: Row) -> str:
    """What became of the proofs, where some were written."""
    if not row.proofs:
        return ""
    return f" {proofs_in_words(row.verified or 0, row.proofs, row.proofs_checked or 0, row.proofs_rejected or 0)}."


def _beside(row: Row) -> str:
    """SA and RA of a network that is compared with none."""
    shares = {"are classified correctly (SA)": row.sa, "withstand the attack (RA)": row.ra}
    known = [f"{share:.1%} {what}" for what, share in shares.items() if share is not None]
    return f"; of the test images, {' and '.join(known)}" if known else ""


def _price(base: Row, row: Row, before: Verification, after: Verification) -> str:
    parts = [
        f"{name} {old:.1%} → {new:.1%}"
        for name, old, new in (("SA", base.sa, row.sa), ("RA", base.ra, row.ra))
        if old is not None and new is not None
    ]
    broken, common = newly_broken(before, after)
    parts.append(
        f"of {common:,} images verified in both, {broken:,} {'is' if broken == 1 else 'are'} broken (falsified or"
        " misclassified) now and not before"
    )
    return f"The price: {'; '.join(parts)}."


def newly_broken(before: Verification, after: Verification) -> tuple[int, int]:
    """Images known not to be robust after, but not before; and how many have a verdict in both."""
    old = {(record["index"], record["image"]): record["verdict"] for record in before.records}
    both = {place: r["verdict"] for r in after.records if (place := (r["index"], r["image"])) in old}
    return sum(verdict in BROKEN and old[place] not in BROKEN for place, verdict in both.items()), len(both)
