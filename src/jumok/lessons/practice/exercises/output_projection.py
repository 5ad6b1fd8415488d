"""출력 투영이 있는 멀티 헤드 어텐션

헤드를 이은 벡터에 출력 투영 o_proj를 적용하는 어텐션 층을 작성하세요.

- - -

Multi-head attention with an output projection

Write the attention layer that applies the output projection o_proj to the concatenated heads.
"""

from torch import Tensor, nn
from torch.nn import functional as F


class MultiHeadAttention(nn.Module):
    """Multi-head self-attention with an output projection: (B, T, d_in) -> (B, T, d_out)."""

    def __init__(self, d_in: int, d_out: int, n_head: int, qkv_bias: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        # <solution>
        self.n_head = n_head
        self.q_proj = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.k_proj = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.v_proj = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.o_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        # </solution>

    def forward(self, x: Tensor, causal: bool = False) -> Tensor:
        """Attend from x to itself: (B, T, d_in) -> (B, T, d_out)."""
        # <solution>
        q, k, v = (
            layer(x).unflatten(-1, (self.n_head, -1)).transpose(1, 2)  # (B, H, T, D)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5  # (B, H, T, T)
        if causal:
            scores = scores.masked_fill(scores.new_ones(scores.shape[-2:]).triu(1).bool(), float("-inf"))
        heads = self.dropout(F.softmax(scores, dim=-1)) @ v  # (B, H, T, D)
        return self.o_proj(heads.transpose(1, 2).flatten(2))
        # </solution>
