"""The result of a problem from the results of its parts."""

from dataclasses import dataclass, field, replace

from lingraft.solver.verifier import Result


@dataclass
class Division:
    """Results of the parts of one problem so far.

    It is verified when every part is, and falsified as soon as one is; otherwise unknown, with the reason of the first
    part that was. Seconds are those of the longest way from the beginning to the end of a part, domains are summed.
    """

    #: parts that have no result yet, counting the problem itself as one until it was divided
    open: int = 1
    #: what is known of all of it, from before the division
    whole: Result | None = None
    results: list[Result] = field(default_factory=list)

    def add(self, result: Result, seconds: float, parts: int = 0) -> None:
        """One more part is done, `seconds` after the problem was begun; or it was divided further into `parts`."""
        self.whole = self.whole or result
        self.open += parts - 1
        result.seconds = seconds
        self.results.append(replace(result, verdict="divided") if parts else result)

    @property
    def done(self) -> bool:
        """Whether the verdict on the problem is known."""
        return self.open == 0 or any(result.verdict == "falsified" for result in self.results)

    @property
    def result(self) -> Result:
        """That of the problem, once it is done."""
        assert self.whole is not None
        undecided = [result for result in self.results if result.verdict not in ("verified", "divided")]
        undecided.sort(key=lambda result: result.verdict != "falsified")
        last = undecided[0] if undecided else Result("verified", "branch")
        lowest = [each.branched for each in undecided if each.branched is not None]
        return replace(
            self.whole,
            verdict=last.verdict,
            stage=last.stage,
            reason=last.reason,
            witness=last.witness,
            error=last.error,
            branched=min(lowest, default=self.whole.branched) if undecided else 0.0,
            seconds=max(result.seconds for result in self.results),
            domains=sum(result.domains for result in self.results),
            memory=max(result.memory for result in self.results),
        )
