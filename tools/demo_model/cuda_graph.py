"""A whole training step, data included, as one CUDA graph: these networks are so small that launching is most of the cost."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

WARM_STEPS = 5

Step = Callable[[], dict[str, Tensor]]


def captured(step: Step) -> Step:
    """The step as one graph; it has really run WARM_STEPS times after this.

    The step may copy nothing from the host and read nothing back, and its random draws come from the device's default
    generator. The returned tensors are overwritten by the next call. On a CPU the step itself is returned.
    """
    if not torch.cuda.is_available():
        return step
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_STEPS):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()

    def replay() -> dict[str, Tensor]:
        graph.replay()
        return result

    return replay


def descend(optimiser: torch.optim.Optimizer, net: nn.Module, loss: Tensor, limit: float) -> Tensor:
    """One optimiser step with the gradient's norm cut to `limit`; a step that is not finite moves nothing by itself.

    Returns: the norm. No decision reaches the host.
    """
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    grads = [p.grad for p in net.parameters() if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
    scale = torch.where(torch.isfinite(norm), (limit / (norm + 1e-6)).clamp(max=1.0), torch.zeros_like(norm))
    for grad in grads:
        torch.nan_to_num(grad, 0.0, 0.0, 0.0, out=grad)
    torch._foreach_mul_(grads, scale)
    optimiser.step()
    return norm


class DeviceAverage:
    """Moving average of a module's parameters whose rate lives on the device, so that a graph can hold the update."""

    def __init__(self, net: nn.Module, decay: float):
        self.net, self.decay = net, decay
        self.values = [p.detach().clone() for p in net.parameters()]
        self.share = torch.zeros((), device=self.values[0].device)

    def set_step(self, step: int) -> None:
        """Short memory at first."""
        self.share.fill_(1 - min(self.decay, (1 + step) / (10 + step)))

    @torch.no_grad()
    def update(self) -> None:
        new = [p.detach() for p in self.net.parameters()]
        torch._foreach_add_(self.values, torch._foreach_mul(torch._foreach_sub(new, self.values), self.share))

    @torch.no_grad()
    def apply(self) -> None:
        """Put the average into the module."""
        for p, value in zip(self.net.parameters(), self.values, strict=True):
            p.copy_(value)


def optimiser(net: nn.Module, rate: float, **options) -> tuple[torch.optim.Optimizer, Tensor]:
    """AdamW that a graph can hold, and its learning rate as a tensor to fill."""
    device = next(net.parameters()).device
    value = torch.tensor(rate, device=device)
    on_gpu = device.type == "cuda"
    return torch.optim.AdamW(net.parameters(), value, fused=on_gpu, capturable=on_gpu, **options), value
