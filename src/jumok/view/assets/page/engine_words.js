// @ts-check
// What an engine says when it is asked for what it cannot do: [Korean, English]. A reader sees most of these only if a
// page asks for something wrong; what a text or a file can cause is in words.js.

import { defineWords } from "../base/words.js";

defineWords({
  "engine.id": [
    "{id}번 토큰은 어휘에 없습니다. 0부터 {last}까지 있습니다.",
    "Token id {id} is not in the vocabulary, which has 0 to {last}.",
  ],
  "engine.no_labels": ["이 모델에는 라벨이 없습니다.", "This model has no labels."],
  "engine.no_layer": [
    "{layer}번 층이 없습니다. 층은 0부터 {last}까지입니다.",
    "There is no layer {layer}; layers are 0 to {last}.",
  ],
  "engine.no_masks": ["이 모델은 빈칸의 토큰을 예측하지 않습니다.", "This model does not predict masked tokens."],
  "engine.no_worker": [
    "이 브라우저에서는 워커를 시작할 수 없습니다: {detail}",
    "This browser cannot start a worker: {detail}",
  ],
  "engine.not_next": [
    "기록한 글에 토큰 하나를 더한 글이 아닙니다. 처음부터 다시 기록하세요.",
    "This is not the recorded text with one more token. Record it again.",
  ],
  "engine.not_ready": ["모델을 아직 읽지 못했습니다.", "The model has not been read yet."],
  "engine.not_this_model": [
    "이 종류의 모델({kind})에는 {method} 기능이 없습니다.",
    "A model of the kind {kind} does not support {method}.",
  ],
  "engine.window_moves": [
    "글이 모델의 컨텍스트 길이({most}토큰)보다 길어졌습니다. 다시 기록하세요.",
    "The text has grown longer than the model's context of {most} tokens. Record it again.",
  ],
});
