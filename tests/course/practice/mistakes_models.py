"""The exercises on whole models: mistakes as replacements."""

from __future__ import annotations

BLOCKS = "nn.ModuleList(Block(n_embd, n_head, dropout) for _ in range(n_layer))"
EMBEDDED = "x = self.drop(self.positions(self.token_embedding(ids)))  # (B, T, C)"
LOOP = "        for block in self.blocks:\n            x = block(x)\n"
LOGITS = "return self.head(self.norm(x))"
ENTROPY = "F.cross_entropy(logits.flatten(0, 1), targets.flatten())"
BLOCK = 'Block = mine("block").Block'

PLACED = """x = self.token_embedding(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        x = self.drop(x)"""
TORCH = ("from torch import Tensor, nn\n", "import torch\nfrom torch import Tensor, nn\n")

# exercise, mistake, what to replace in the solution
MISTAKES = [
    ("gpt", "sees-the-future", [(BLOCK, f"{BLOCK}\n_attend = mine('output_projection').MultiHeadAttention.forward\n\n\n"
                                        "class Seeing(mine('output_projection').MultiHeadAttention):\n"
                                        "    def forward(self, x, causal=True):\n"
                                        "        return _attend(self, x, causal=False)\n\n\n"
                                        "class Block(Block):\n"
                                        "    def __init__(self, width, n_head, dropout=0.0):\n"
                                        "        super().__init__(width, n_head, dropout)\n"
                                        "        self.attention = Seeing(width, width, n_head, qkv_bias=True)")]),
    ("gpt", "softmax", [(LOGITS, f"{LOGITS}.softmax(dim=-1)")]),
    ("gpt", "no-final-norm", [("self.head(self.norm(x))", "self.head(x)")]),
    ("gpt", "no-positions", [("self.positions(self.token_embedding(ids))", "self.token_embedding(ids)")]),
    ("gpt", "tokens-twice", [(EMBEDDED, "x = self.token_embedding(ids)\n        x = x + self.positions(x)")]),
    ("gpt", "ids-as-positions", [(EMBEDDED, "x = self.token_embedding(ids) + self.positions(ids)")]),
    ("gpt", "ids-as-positions", [(EMBEDDED, "x = self.token_embedding(ids) + self.positions(ids)"),
                                 ("LearnedPositions(context", "nn.Embedding(context")]),
    ("gpt", "norm-elsewhere", [("x = block(x)", "x = self.norm(block(x))")]),
    ("gpt", "norm-elsewhere", [(EMBEDDED, f"{EMBEDDED}\n        x = self.norm(x)")]),
    ("gpt", "added-again", [("x = block(x)", "x = x + block(x)")]),
    ("gpt", "argmax", [(LOGITS, f"{LOGITS}.argmax(-1)")]),
    ("gpt", "earlier-exercise", [(BLOCK, f"{BLOCK}\n\n\nclass Block(Block):\n"
                                         "    def forward(self, x):\n        return super().forward(x) + x")]),
    ("gpt", "missing-parameter", [("self.head = ", "self.output = ")]),
    ("gpt", "device", [(EMBEDDED, PLACED.replace(", device=ids.device", "")),
                       ("LearnedPositions(context", "nn.Embedding(context"), TORCH]),
    ("gpt", "blocks-skipped", [("            x = block(x)", "            block(x)")]),
    ("gpt", "blocks-skipped", [(f"        {LOGITS}", f"            {LOGITS}")]),
    ("gpt", "last-position", [(LOGITS, "return self.head(self.norm(x[:, -1]))")]),
    ("gpt", "number-of-blocks", [("range(n_layer)", "range(n_layer - 1)")]),
    ("gpt", "one-block", [(BLOCKS, "nn.ModuleList([Block(n_embd, n_head, dropout)] * n_layer)")]),
    ("gpt", "plain-list", [(BLOCKS, "[Block(n_embd, n_head, dropout) for _ in range(n_layer)]")]),
    ("gpt", "head-bias", [(", bias=False)", ")")]),
    ("gpt", "no-block-dropout", [("Block(n_embd, n_head, dropout)", "Block(n_embd, n_head)")]),
    ("gpt", "no-embedding-dropout", [("self.drop(self.positions(self.token_embedding(ids)))",
                                      "self.positions(self.token_embedding(ids))")]),
    ("gpt", "does-not-learn", [("        self.head = nn.Linear(n_embd, vocab_size, bias=False)\n",
                                "        self.head = nn.Linear(n_embd, vocab_size, bias=False)\n"
                                "        nn.init.constant_(self.token_embedding.weight, 0.0)\n"
                                "        self.requires_grad_(False)\n"
                                "        self.head.requires_grad_(True)\n")]),
    ("bigram", "softmax", [("return self.table(ids)", "return self.table(ids).softmax(-1)")]),
    ("bigram", "columns", [("self.table(ids)", "self.table.weight.T[ids]")]),
    ("bigram", "not-flattened", [(ENTROPY, "F.cross_entropy(logits, targets)")]),
    ("bigram", "own-token", [("targets.flatten()", "ids.flatten()")]),
    ("bigram", "shifted-twice", [(ENTROPY, "F.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten())")]),
    ("bigram", "softmax-twice", [("logits.flatten(0, 1)", "logits.softmax(-1).flatten(0, 1)")]),
    ("bigram", "reshaped", [(ENTROPY, "F.cross_entropy(logits.view(len(ids), -1, ids.shape[1]), targets)")]),
    ("bigram", "no-log-softmax", [(ENTROPY, "F.nll_loss(logits.flatten(0, 1), targets.flatten())")]),
    ("bigram", "loss-inputs", [(ENTROPY, "F.cross_entropy(logits.flatten(0, 1), F.one_hot(targets.flatten()))")]),
    ("bigram", "not-subscriptable", [("self.table(ids)", "self.table[ids]")]),
    ("bigram", "sum", [("targets.flatten())", "targets.flatten(), reduction='sum')")]),
    ("bigram", "last-only", [(ENTROPY, "F.cross_entropy(logits[:, -1], targets[:, -1])")]),
    ("bigram", "sign", [(ENTROPY, f"-{ENTROPY}")]),
    ("bigram", "no-gradient", [(ENTROPY, f"{ENTROPY}.detach()")]),
]  # fmt: skip
