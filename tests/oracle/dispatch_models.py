"""The models of tests/support/dispatch_models.h, in Python: names, shapes and ops must agree."""

import torch
from torch import nn


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = nn.Linear(3, 4)
        self.batchnorm = nn.BatchNorm1d(4)
        self.linear2 = nn.Linear(4, 5)

    def forward(self, x):
        return self.linear2(self.batchnorm(self.linear1(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(5)
        self.up = nn.Linear(5, 7)
        self.down = nn.Linear(7, 5)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Small()
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.last = nn.Linear(5, 2, bias=False)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def tie(model):
    if isinstance(model, Tied):
        model.decoder.weight = model.encoder.weight


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(6, 6)
        self.middle = nn.Linear(6, 6)
        self.decoder = nn.Linear(6, 6)
        tie(self)

    def forward(self, x):
        return self.decoder(torch.tanh(self.middle(self.encoder(x))))


class Shift(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("offset", torch.zeros(4))
        self.register_buffer("order", torch.arange(4))

    def forward(self, x):
        return (x * self.scale + self.offset).index_select(1, self.order)


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(4))
        self.register_buffer("bias", torch.zeros(4))
        self.linear = nn.Linear(4, 4)
        self.shift = Shift()

    def forward(self, x):
        return self.shift(self.linear(x * self.gain + self.bias))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.again = self.shared
        self.other = nn.Linear(4, 4)

    def forward(self, x):
        return self.shared(torch.tanh(self.other(self.shared(torch.tanh(self.shared(x))))))


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.a + 1


class Numbered(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Module()
        for name in ("1", "10", "2"):
            self.a.add_module(name, Part())

    def forward(self, x):
        for part in self.a.children():
            x = part(x)
        return x


class Typed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(10, 5))
        self.register_buffer("ids", torch.zeros(15, 30, dtype=torch.int64))

    def forward(self, x):
        return x.matmul(self.weight) + self.ids.sum().to(x.dtype)


MODELS = {"small": Small, "nested": Nested, "tied": Tied, "buffers": Buffers, "twice": Twice,
          "numbered": Numbered, "typed": Typed}
WIDTHS = {"small": 3, "nested": 3, "tied": 6, "buffers": 4, "twice": 4, "numbered": 4, "typed": 10}


def tensors_of(model):
    """Every name, also those of one tensor."""
    return {**dict(model.named_parameters(remove_duplicate=False)),
            **dict(model.named_buffers(remove_duplicate=False))}


def state_of(name, seed):
    """Values for a model, tied ones equal, every name with its own memory; none as it was built."""
    torch.manual_seed(seed)
    model = MODELS[name]()
    with torch.no_grad():
        for key, tensor in model.state_dict().items():
            if key == "shift.order":
                tensor.copy_(torch.randperm(4))
            elif not tensor.is_floating_point():
                tensor.copy_(torch.randint(-9, 9, tensor.shape))
            elif key.endswith("running_var"):
                tensor.copy_(torch.rand(tensor.shape) + 0.5)
            else:
                tensor.copy_(torch.randn(tensor.shape))
    return {key: tensor.detach().clone() for key, tensor in tensors_of(model).items()}


def plain(name, values, dtype=None):
    """The model without anything around it."""
    model = MODELS[name]().eval()
    model.load_state_dict(values)
    return model if dtype is None else model.to(dtype)
