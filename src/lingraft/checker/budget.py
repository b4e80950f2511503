"""What a check may cost, set from the sizes of the two files before anything is made.

A few bytes can ask for a lot: arrays of zeros pack a thousandfold, and what they ask for multiplies (rounds × taps,
constraints × outputs). So every step says what it is going to cost before it begins, and is refused if that is more
than files of this size may ask for. Work is in nanoseconds, estimated from sizes alone: a rough clock that does not
depend on the machine. docs/certificates.md has the rule; real certificates need less than a tenth of it.
"""

from lingraft.checker.format import Rejected
from lingraft.checker.network import Network
from lingraft.checker.nodes import Convolution, Dense, Gather, Node, Site
from lingraft.checker.rows import Rows

#: Bytes that a check may hold at once.
MEMORY = 1 << 30

#: Work that every check may do, for each byte of both files, and at most for bounds of all neurons of the network.
ALWAYS, PER_BYTE, BOUNDS = 2e9, 2e4, 4e9

#: A byte of the certificate may ask for a bound of one tap, in one domain, so many times.
TAPS_PER_BYTE = 600

#: What a step of NumPy costs however small its arrays are.
STEP = 2e4


class Budget:
    """Work and memory that are left; without sizes there is no limit to the work."""

    def __init__(self, work: float = float("inf"), memory: float = MEMORY):
        self.limit, self.memory = work, memory
        self.spent = self.held = 0.0

    @classmethod
    def of(cls, network: Network, certificate_bytes: int) -> "Budget":
        """For the bounds of a network, without trees."""
        rows, through, parameters = 0.0, 0.0, 0
        for node in network.nodes:
            rows += node.size * through if isinstance(node, Site) else 0.0
            through += multiplications(node)
            parameters += weights(node)
        return cls(ALWAYS + PER_BYTE * (4 * parameters + certificate_bytes) + min(rows, BOUNDS))

    def allow(self, work: float) -> None:
        """Room for more."""
        self.limit += work

    def work(self, amount: float) -> None:
        """Say what the next step costs."""
        self.spent += amount
        if not self.spent <= self.limit:
            raise Rejected(
                f"it asks for too much work, about {self.spent / 1e9:,.1f} s; files of these sizes may ask for"
                f" {self.limit / 1e9:,.1f} s"
            )

    def hold(self, size: float) -> None:
        """Say what will be kept, in bytes."""
        self.brief(size)
        self.held += size

    def brief(self, size: float) -> None:
        """Say what the next step takes for a moment, in bytes."""
        if not self.held + size <= self.memory:
            raise Rejected(
                f"it asks for too much memory, {(self.held + size) / 1e6:,.0f} MB of at most {self.memory / 1e6:,.0f}"
            )


def weights(node: Node) -> int:
    """Numbers that a file has for a node, not those that it makes of them."""
    if isinstance(node, Convolution):
        return node.matrix.size
    return node.weight.size if isinstance(node, Dense) else 0


def multiplications(node: Node) -> int:
    """In computing all values of a node once."""
    return max(node.size * node.matrix.shape[1] if isinstance(node, Convolution) else weights(node), node.size)


def forward_bytes(node: Node) -> int:
    """Memory that computing a node takes for a moment, and one row over the whole node on its way back."""
    if not isinstance(node, Convolution):
        return 8 * node.size
    top, left, bottom, right = node.padding
    height, width, channels = node.source
    padded = (height + top + bottom) * (width + left + right) * channels
    return 8 * (2 * padded + node.shape[0] * node.shape[1] * _window(node))


def _window(node: Convolution) -> int:
    """Numbers that a kernel looks at."""
    return node.kernel[0] * node.kernel[1] * node.source[2]


class Passage:
    """What one row costs on its way back.

    widest: the most coefficients that it has anywhere; spread: the most products with kernels that are kept before they
    are added up; its work; and the number of steps, which many rows can take together.
    """

    def __init__(self) -> None:
        self.widest, self.spread, self.work, self.steps = 1, 1, 0.0, 0

    def see(self, node: Node, rows: Rows) -> None:
        """Rows like this one arrive at a node."""
        size = products = rows.a[0, 0].size
        if isinstance(node, Gather):
            size = products = node.passed(rows)
            self.work += 12 * size
        self.widest, self.steps = max(self.widest, size), self.steps + 8
        if isinstance(node, Convolution):
            spread, products = size // node.shape[2] * _window(node), size * node.matrix.shape[1]
            self.spread, self.steps = max(self.spread, spread), self.steps + node.kernel[0] * node.kernel[1]
            self.work += 4 * spread
        elif isinstance(node, Dense):
            products = node.weight.size
        self.work += products / 4 + 8 * size
