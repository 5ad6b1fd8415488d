"""All kinds of questions, in the order of the chapters."""

from __future__ import annotations

from collections.abc import Mapping

from jumok.course.exam import attention_kinds, model_kinds, writing_kinds
from jumok.course.exam.drawn import Kind
from jumok.course.words import Words

KINDS: Mapping[str, Kind] = {
    "average": Kind(Words("이전 토큰들의 평균", "Average of the tokens so far"), 1, attention_kinds.average),
    "dot_product": Kind(Words("내적", "Dot products"), 2, attention_kinds.dot_products),
    "softmax": Kind(Words("소프트맥스", "Softmax"), 2, attention_kinds.softmax),
    "softmax_gradient": Kind(
        Words("소프트맥스의 미분", "Derivative of the softmax"), 2, attention_kinds.softmax_gradient
    ),
    "weighted_sum": Kind(Words("가중합", "Weighted sum"), 2, attention_kinds.weighted_sum),
    "scaled_scores": Kind(Words("√D로 나눈 점수", "Scaled scores"), 3, attention_kinds.scaled_scores),
    "causal_mask": Kind(Words("인과 마스크", "Causal mask"), 4, attention_kinds.causal_row),
    "masked_weights": Kind(
        Words("인과 어텐션의 가중치", "Weights of causal attention"), 4, attention_kinds.masked_weights
    ),
    "shapes": Kind(Words("멀티헤드 어텐션의 모양", "Shapes in multi-head attention"), 5, attention_kinds.shapes),
    "masked_mean": Kind(Words("패딩을 제외한 평균", "Mean without padding"), 6, attention_kinds.masked_mean),
    "layer_norm": Kind(Words("LayerNorm", "LayerNorm"), 7, model_kinds.normalized),
    "sinusoidal": Kind(Words("사인파 위치 임베딩", "Sinusoidal positions"), 8, model_kinds.sinusoidal_entry),
    "rotary": Kind(Words("회전 위치 임베딩", "Rotary positions"), 8, model_kinds.rotary_angle),
    "kv_cache": Kind(Words("KV 캐시의 크기", "Size of the KV cache"), 9, model_kinds.cache_size),
    "parameters": Kind(Words("파라미터 수", "Number of parameters"), 10, model_kinds.parameters),
    "cross_entropy": Kind(Words("교차 엔트로피", "Cross-entropy"), 13, writing_kinds.cross_entropy),
    "learning_rate": Kind(Words("학습률 스케줄", "Learning-rate schedule"), 13, writing_kinds.learning_rate),
    "temperature": Kind(Words("온도", "Temperature"), 14, writing_kinds.temperature),
    "top_k": Kind(Words("top-k", "Top-k"), 14, writing_kinds.top_k),
    "top_p": Kind(Words("top-p", "Top-p"), 14, writing_kinds.top_p),
    "bpe_merges": Kind(Words("BPE 병합", "BPE merges"), 15, writing_kinds.merges),
}
