// @ts-check
// The words of the view of attention, [Korean, English].

import { defineWords } from "../base/words.js";

defineWords({
  "attention.view": ["글의 어텐션", "Attention on the text"],
  "attention.empty": [
    "글을 쓰면 그 글의 어텐션을 여기에서 볼 수 있습니다.",
    "Write something first. The attention on your text is shown here.",
  ],
  "attention.noAnswer": [
    "먼저 답을 생성하세요. 답의 각 토큰이 입력의 어느 토큰을 참조하는지 여기에 표시합니다.",
    "Get an answer first. Its attention on the input is shown here.",
  ],
  "attention.failed": ["어텐션을 계산하지 못했습니다: {detail}", "The attention could not be computed: {detail}"],
  "attention.off": ["꺼진 헤드", "Heads switched off"],
  "attention.offHint": [
    "헤드를 선택하고 ‘끄기’ 버튼이나 x 키를 누르면 그 헤드 없이 계산합니다.",
    "Choose a head and press the button that switches it off, or the key x. The model then computes without it.",
  ],
  "attention.on": ["층 {layer} 헤드 {head} 다시 켜기", "Switch layer {layer} head {head} on again"],
  "attention.allOn": ["모두 켜기", "Switch all on"],
  "attention.switchedOff": ["끈 헤드: {list}.", "Heads switched off: {list}."],
  "attention.switchedOn": ["모든 헤드가 켜져 있습니다.", "All heads are switched on."],
  "attention.effect": [
    "다음 토큰의 확률: 모든 헤드 → 끈 뒤",
    "Probability of the next token: all heads → without these",
  ],
  "attention.effect.same": [
    "확률이 가장 높은 다음 토큰은 그대로 {token}입니다({before} → {after}). 전체 확률 가운데 {moved}가 다른 토큰으로 옮겨 갔습니다.",
    "The most probable next token stays {token}; its probability goes from {before} to {after}. In all, {moved} of the "
      + "probability has moved to other tokens.",
  ],
  "attention.effect.other": [
    "확률이 가장 높은 다음 토큰이 바뀝니다: {old}({before}) → {token}({after}). 전체 확률 가운데 {moved}가 다른 토큰으로 옮겨 갔습니다.",
    "The most probable next token changes from {old} ({before}) to {token} ({after}). In all, {moved} of the probability "
      + "has moved to other tokens.",
  ],
  "attention.effect.token": ["토큰", "Token"],
  "attention.effect.before": ["모든 헤드", "All heads"],
  "attention.effect.after": ["끈 뒤", "Without"],
});
