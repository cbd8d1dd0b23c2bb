"""A made-up GPU in the image of a 16-bit cell that was measured on an H200: 16 heads, head size 128, one own kernel and
four library calls. The own one is ahead at n = 64 and 1.7 times behind from 2048 on; tools load for seconds, and a new
n takes new operands, which is most of a look."""

from fake import FakeExecutor
from h200_model import Attention, between, made

from advisor.search.space import SpaceOptions, Toolchain

TOOLS = SpaceOptions((Toolchain("triton-3.6", "cuda", "triton"), Toolchain("torch-2.11", "cuda", "torch")), ("none",))
SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
SHAPE = {"batch": 2, "heads": 16, "kv_heads": 16, "head_dim": 128}


def at_sizes(*figures):
    return dict(zip(SIZES, figures, strict=True))


OWN_US = at_sizes(17.5, 25.0, 35.0, 57.0, 217.0, 797.0, 2818.0, 10200.0)
CUDNN_US = at_sizes(21.7, 24.0, 33.0, 54.0, 170.0, 463.0, 1650.0, 6240.0)
BEHIND_CUDNN = {"flash": (1.22, 1.45), "efficient": (1.4, 1.9), "math": (1.8, 14.0)}
"""Times of the other calls over cuDNN's at the smallest and at the largest n."""

OPERANDS_S = at_sizes(0.25, 0.28, 0.24, 0.38, 0.38, 0.82, 1.4, 2.6)
PROGRAM_S, LOADS_S = 2.5, {"triton-3.6": 1.3, "torch-2.11": 2.4, "cudnn": 0.3}
CALLS, LOOK_S, PLAN_S = 20, 0.02, 0.3
"""Calls of a look, checks included; what else one takes, or a sample; a new plan of cuDNN's at every n."""


def bf16(variant):
    return variant._replace(dtypes=("bfloat16",))


VARIANTS = (
    bf16(made("fused_triton", 1, "triton", own=(128, 64), step=(32, 64), gq_atomic=(0, 1))),
    *(bf16(made(name, 30 + k, "torch")) for k, name in enumerate(("flash", "cudnn", "efficient", "math"))),
)


class Attention16(Attention):
    """The same in 16 bits."""

    dtypes = ("bfloat16",)


def us(n, name, knobs):
    if name == "fused_triton":
        slower = (1.12 if knobs["own"] == 64 else 1.0) * (1.2 if knobs["step"] == 64 else 1.0)
        return between(OWN_US, n) * slower * (1.15 if knobs["gq_atomic"] else 1.0)
    small, large = BEHIND_CUDNN.get(name, (1.0, 1.0))
    return between(CUDNN_US, n) * between({SIZES[0]: small, SIZES[-1]: large}, n)


class Gpu16(FakeExecutor):
    """A second to start; then what tools, programs, plans, operands and calls take."""

    def __init__(self, call_ns, **options):
        super().__init__(call_ns, build_s=0.0, overhead_s=LOOK_S, **options)
        self.had, self.ready = set(), False

    def prepare(self, problem, choices):
        self.clock.now += 0.0 if self.ready else 1.0
        self.ready = True

    def measure(self, problem, choice, ask):
        begun, tool, cudnn = self.clock.now, choice.build.compiler, choice.build.variant == "cudnn"
        once = {("tool", tool): LOADS_S[tool], ("operands", problem): between(OPERANDS_S, problem.n)}
        once |= {("tool", "cudnn"): LOADS_S["cudnn"], ("plan", problem): PLAN_S} if cudnn else {}
        once |= {("program", choice.build): PROGRAM_S} if tool == "triton-3.6" else {}
        self.clock.now += sum(seconds for what, seconds in once.items() if what not in self.had)
        self.had |= {*once}
        self.clock.now += (2 if (problem, choice) in self.had else CALLS) * 1e-9 * self.times(problem, choice)
        self.had.add((problem, choice))
        extra = self.clock.now - begun
        found = super().measure(problem, choice, ask)
        return found._replace(seconds=found.seconds + extra)
