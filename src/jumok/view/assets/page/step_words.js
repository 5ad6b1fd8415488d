// @ts-check
// The words of the view that takes one step apart, [Korean, English].

import { defineWords } from "../base/words.js";

defineWords({
  // --- the view and its controls ---
  "step.legend": ["색이 진할수록 절댓값이 큽니다.", "The deeper the colour, the larger the absolute value."],
  "step.count": ["{n}/{all}", "{n} of {all}"],
  "step.where.layer": ["층 {layer}", "layer {layer}"],
  "step.where.head": ["층 {layer} · 헤드 {head}", "layer {layer} · head {head}"],
  "step.view": ["한 단계의 계산", "The computation of one step"],
  "step.player": ["재생", "Player"],
  "step.play": ["재생", "Play"],
  "step.pause": ["멈춤", "Pause"],
  "step.first": ["처음으로", "First part"],
  "step.previous": ["이전 부분", "Previous part"],
  "step.next": ["다음 부분", "Next part"],
  "step.last": ["끝으로", "Last part"],
  "step.speed": ["속도", "Speed"],
  "step.speed.value": ["{n}배", "{n}×"],
  "step.scrubber": ["진행 위치", "Progress"],
  "step.scrubber.value": ["{n}/{all} {part}", "{n} of {all}: {part}"],
  "step.map": ["계산의 순서", "The order of the computation"],
  "step.group.input": ["입력", "Input"],
  "step.group.attention": ["어텐션", "Attention"],
  "step.group.mlp": ["MLP", "MLP"],
  "step.group.output": ["출력", "Output"],
  "step.layer": ["층", "Layer"],
  "step.head": ["헤드", "Head"],
  "step.heads": ["헤드", "Heads"],
  "step.text": ["글의 위치 선택", "Choose a place in the text"],

  "step.token": ["{position}번 위치, 토큰 {token}", "Position {position}, token {token}"],
  "step.numbers": ["이 부분의 숫자", "The numbers of this part"],
  "step.save": ["그림을 SVG로 저장", "Save the picture as SVG"],
  "step.picture": ["{title}. {summary}", "{title}. {summary}"],
  "step.keys": [
    "스페이스: 재생/멈춤 · p, n: 이전, 다음 · [ ]: 층 · 쉼표, 마침표: 헤드 · 그림에서 화살표: 숫자 읽기",
    "Space: play or pause · p, n: previous, next · [ ]: layer · comma, full stop: head · arrows in the picture: read its "
      + "numbers",
  ],
  "step.computing": ["계산하고 있습니다.", "Computing."],
  "step.failed": ["이 단계를 계산하지 못했습니다: {detail}", "This step could not be computed: {detail}"],
  "step.nothing": [
    "글을 쓰면 그 글의 한 단계를 계산하는 과정을 여기에서 볼 수 있습니다.",
    "Write something first. The computation of one step is shown here.",
  ],
  "step.off": ["꺼짐", "off"],
  "step.offHead": ["이 헤드는 꺼져 있어 출력이 0입니다.", "This head is switched off, so its output is zero."],
  "step.more": ["작은 가중치 {n}개 생략", "{n} smaller weights not shown"],
  "step.chooseKey": ["행을 클릭하면 키를 표시합니다.", "Click a row to see its key."],
  "step.length": ["길이 {n}", "length {n}"],
  "step.index": ["{name}[{i}]", "{name}[{i}]"],
  "step.chosen": ["선택한 헤드", "chosen head"],
  "step.table.index": ["번호", "Index"],
  "step.table.value": ["값", "Value"],
  "step.table.token": ["토큰", "Token"],
  "step.table.position": ["위치", "Position"],
  "step.table.layer": ["층", "Layer"],
  "step.table.length": ["길이", "Length"],

  // --- the parts: title, short title on the map, two sentences ---
  "step.part.token": ["토큰과 위치", "Token and position"],
  "step.text.token": [
    "모델은 글을 토큰 번호의 시퀀스로 읽습니다. 이 단계에서는 {position}번 위치의 토큰 {token}까지 읽고 다음 토큰을 예측합니다.",
    "The model reads the text as a sequence of token ids. This step reads up to the token {token} at position {position} and "
      + "predicts the next one.",
  ],
  "step.part.embedding": ["임베딩", "Embedding"],
  "step.text.embedding": [
    "임베딩 표에서 {id}번 토큰의 행을 꺼냅니다. 이 숫자 {C}개가 잔차 스트림의 시작값입니다.",
    "The row of token {id} is taken from the embedding table. Its {C} numbers are where the residual stream begins.",
  ],
  "step.text.embedding.learned": [
    "{id}번 토큰의 임베딩에 {position}번 위치의 임베딩을 더합니다. 이 합이 잔차 스트림의 시작값입니다.",
    "The embedding of position {position} is added to the embedding of token {id}. The sum is where the residual stream "
      + "begins.",
  ],
  "step.part.before": ["앞의 층", "Layers before"],
  "step.text.before": [
    "앞의 층들은 어텐션과 MLP의 출력을 잔차 스트림에 차례로 더했습니다. 막대는 더한 벡터의 길이입니다.",
    "The layers before this one added the outputs of their attention and MLP to the residual stream. The bars are the "
      + "lengths of the vectors that were added.",
  ],
  "step.part.norm1": ["정규화", "Norm"],
  "step.text.norm.rms": [
    "RMSNorm은 벡터의 크기를 일정하게 맞춥니다. 각 숫자를 제곱평균제곱근({rms})으로 나누고 학습한 가중치를 곱합니다.",
    "RMSNorm brings the vector to a standard size. Each number is divided by the root mean square, {rms}, and multiplied "
      + "by a learned weight.",
  ],
  "step.text.norm.layer": [
    "LayerNorm은 벡터의 크기를 일정하게 맞춥니다. 평균({mean})을 빼고 표준편차({deviation})로 나눈 뒤, 학습한 가중치를 곱하고 편향을 더합니다.",
    "LayerNorm brings the vector to a standard size. The mean, {mean}, is subtracted, the result is divided by the "
      + "standard deviation, {deviation}, and a learned weight and bias are applied.",
  ],
  "step.part.qkv": ["q, k, v", "q, k, v"],
  "step.text.qkv": [
    "행렬 세 개가 같은 벡터를 쿼리 q, 키 k, 값 v로 바꿉니다. 쿼리는 이 토큰이 찾는 것을, 키는 다른 토큰이 이 토큰을 찾는 데 쓰는 것을, 값은 "
      + "전달할 내용을 나타냅니다.",
    "Three matrices turn the same vector into a query q, a key k and a value v. The query stands for what this token "
      + "looks for, the key for how other tokens find it, and the value for what it passes on.",
  ],
  "step.part.rotation": ["위치 회전", "Rotation"],
  "step.text.rotation": [
    "q와 k의 숫자를 둘씩 짝지어 위치에 비례하는 각도만큼 회전시킵니다. 그 결과 q·k는 두 토큰 사이의 거리에 따라 달라집니다.",
    "The numbers of q and k are taken in pairs and rotated by an angle proportional to the position. The product q·k "
      + "then depends on the distance between two tokens.",
  ],
  "step.part.scores": ["q·k", "q·k"],
  "step.text.scores": [
    "쿼리 q와 각 토큰의 키 k를 원소별로 곱하여 모두 더합니다. 두 벡터의 방향이 비슷하고 길이가 길수록 합이 큽니다.",
    "The query is multiplied by the key of each token, element by element, and the products are added up. The sum is "
      + "large if both vectors are long and point the same way.",
  ],
  "step.part.scale": ["√D와 마스크", "√D and mask"],
  "step.text.scale": [
    "q·k를 √D(= {root})로 나누어, 점수가 헤드의 폭 D에 따라 커지지 않게 합니다. 미래 토큰은 마스크로 가리므로 점수는 −∞, 가중치는 "
      + "0이 됩니다.",
    "q·k is divided by √D = {root}, so that scores do not grow with the head width D. Future tokens are masked: their "
      + "scores are −∞ and their weights 0.",
  ],
  "step.part.softmax": ["소프트맥스", "Softmax"],
  "step.text.softmax": [
    "소프트맥스는 점수를 합이 1인 가중치로 바꿉니다. 점수에서 최댓값({highest})을 뺀 뒤 지수 함수를 적용하고, 그 합({sum})으로 나눕니다.",
    "Softmax turns the scores into weights that add up to 1. The highest score, {highest}, is subtracted from each. The "
      + "exponentials of the results are divided by their sum, {sum}.",
  ],
  "step.part.values": ["값의 가중합", "Weighted values"],
  "step.text.values": [
    "각 토큰의 값 v에 어텐션 가중치를 곱하여 모두 더합니다. 이 합이 헤드 {head}의 출력입니다.",
    "The value of each token is multiplied by its attention weight, and all are added up. The sum is the output of head "
      + "{head}.",
  ],
  "step.part.join": ["헤드 결합", "Join heads"],
  "step.text.join": [
    "헤드 {H}개의 출력을 이어 붙여 숫자가 {HD}개인 벡터 하나를 만듭니다. 헤드마다 다른 토큰을 참조하므로 서로 다른 정보를 담고 있습니다.",
    "The outputs of all {H} heads are put side by side into one vector of {HD} numbers. Heads attend to different "
      + "tokens, so they carry different information.",
  ],
  "step.part.output": ["o_proj", "o_proj"],
  "step.text.output": [
    "출력 행렬 o_proj는 이어 붙인 벡터를 잔차 스트림의 폭 C = {C}에 맞춥니다. 이 곱셈에서 여러 헤드의 정보가 섞입니다.",
    "The output matrix o_proj brings the joined vector back to the width of the residual stream, C = {C}. This "
      + "multiplication mixes the information of the heads.",
  ],
  "step.part.residual1": ["잔차 연결", "Residual"],
  "step.text.residual1": [
    "어텐션의 출력을 층의 입력에 더합니다. 입력은 그대로 남고, 층은 거기에 정보를 더하기만 합니다.",
    "The output of attention is added to the input of the layer. The input stays as it is; the layer only adds "
      + "information to it.",
  ],
  "step.part.norm2": ["정규화", "Norm"],
  "step.part.hidden": ["은닉 활성값", "Hidden"],
  "step.text.hidden.gated": [
    "MLP는 벡터를 숫자 {F}개로 넓힙니다. SwiGLU에서는 SiLU를 적용한 벡터를 다른 벡터와 원소별로 곱하여 어느 숫자를 통과시킬지 정합니다.",
    "The MLP widens the vector to {F} numbers. In SwiGLU, one vector goes through SiLU and is multiplied by another, "
      + "element by element, which decides what passes.",
  ],
  "step.text.hidden.plain": [
    "MLP는 벡터를 숫자 {F}개로 넓히고 활성화 함수를 적용합니다. 활성화 함수는 음수를 0 또는 0에 가까운 수로 바꿉니다.",
    "The MLP widens the vector to {F} numbers and applies its activation function, which turns negative numbers into "
      + "zero or nearly zero.",
  ],
  "step.part.mlp": ["MLP 출력", "MLP output"],
  "step.text.mlp": [
    "두 번째 행렬이 숫자 {F}개를 다시 {C}개로 줄입니다. 어텐션과 달리 MLP는 다른 토큰을 참조하지 않고 위치마다 따로 계산합니다.",
    "A second matrix turns the {F} numbers back into {C}. Unlike attention, the MLP uses no other token; it is applied "
      + "to each position by itself.",
  ],
  "step.part.residual2": ["잔차 연결", "Residual"],
  "step.text.residual2": [
    "MLP의 출력을 잔차 스트림에 더합니다. 이 벡터가 층 {layer}의 출력이고, 다음 부분의 입력입니다.",
    "The output of the MLP is added to the residual stream. This vector is the output of layer {layer} and the input of "
      + "the next part.",
  ],
  "step.part.after": ["뒤의 층", "Layers after"],
  "step.text.after": [
    "뒤의 층들도 같은 방법으로 잔차 스트림에 출력을 더합니다. 막대는 더한 벡터의 길이입니다.",
    "The layers after this one add their outputs in the same way. The bars are the lengths of the vectors that are added.",
  ],
  "step.part.norm": ["마지막 정규화", "Final norm"],
  "step.text.norm": [
    "마지막 층의 출력을 한 번 더 정규화합니다. 이 벡터의 숫자 {C}개만으로 다음 토큰을 예측합니다.",
    "The output of the last layer is normalised once more. The next token is predicted from the {C} numbers of this "
      + "vector alone.",
  ],
  "step.part.logits": ["로짓", "Logits"],
  "step.text.logits": [
    "토큰마다 벡터가 하나씩 있고, 그 벡터와 마지막 벡터의 내적이 로짓입니다. 어휘에 토큰이 {V}개 있으므로 로짓도 {V}개입니다.",
    "Each token of the vocabulary has a vector; its dot product with the final vector is the token's logit. There are "
      + "{V} tokens, so there are {V} logits.",
  ],
  "step.part.probabilities": ["확률", "Probabilities"],
  "step.text.probabilities": [
    "소프트맥스가 로짓을 합이 1인 확률로 바꿉니다. 온도({temperature}), top-k, top-p를 적용하면 뽑을 때의 확률이 됩니다.",
    "Softmax turns the logits into probabilities that add up to 1. Temperature {temperature}, top-k and top-p then give "
      + "the probabilities that are drawn from.",
  ],
  "step.part.draw": ["다음 토큰", "Next token"],
  "step.text.draw": [
    "각 토큰은 확률만큼의 구간을 차지하고, 0과 1 사이의 난수가 속한 구간의 토큰이 다음 토큰이 됩니다. 이 글에서 다음 토큰은 {next}입니다.",
    "Each token has an interval as wide as its probability. The token whose interval contains a random number between 0 "
      + "and 1 is the next one. In this text, the next token is {next}.",
  ],
  "step.text.draw.open": [
    "각 토큰은 확률만큼의 구간을 차지하고, 0과 1 사이의 난수가 속한 구간의 토큰이 다음 토큰이 됩니다. 글이 여기에서 끝나므로 아직 뽑지 않았습니다.",
    "Each token has an interval as wide as its probability. The token whose interval contains a random number between 0 "
      + "and 1 is the next one. The text ends here, so nothing has been drawn yet.",
  ],

  // --- names of vectors and captions in the pictures ---
  "step.name.x": ["잔차 스트림 x", "residual stream x"],
  "step.name.input": ["층의 입력 x", "input x of the layer"],
  "step.name.embedding": ["토큰 임베딩", "token embedding"],
  "step.name.position": ["위치 임베딩", "position embedding"],
  "step.name.normed": ["정규화한 x", "normalised x"],
  "step.name.attentionOut": ["어텐션 출력", "output of attention"],
  "step.name.residual1": ["x + 어텐션 출력", "x + output of attention"],
  "step.name.hidden": ["은닉 활성값", "activations"],
  "step.name.mlpOut": ["MLP 출력", "output of the MLP"],
  "step.name.residual2": ["층의 출력", "output of the layer"],
  "step.name.final": ["마지막 벡터", "final vector"],
  "step.name.headOut": ["헤드 {head}의 출력", "output of head {head}"],
  "step.name.joined": ["이어 붙인 벡터", "joined vector"],
  "step.name.query": ["쿼리 q", "query q"],
  "step.name.key": ["키 k", "key k"],
  "step.name.keyOf": ["토큰 {token}의 키 k", "key k of {token}"],
  "step.name.value": ["값 v", "value v"],
  "step.name.valueOf": ["토큰 {token}의 값 v", "value v of {token}"],
  "step.name.products": ["원소별 곱 q × k", "products q × k"],
  "step.name.rotatedQ": ["회전한 q", "rotated q"],
  "step.name.rotatedK": ["회전한 k", "rotated k"],
  "step.name.allLogits": ["로짓 전체", "all logits"],
  "step.sharedKeys": [
    "키·값 헤드 {group}: 헤드 {first}~{last}에서 함께 사용합니다.",
    "Heads {first} to {last} share key/value head {group}.",
  ],
  "step.caption.pairs": [
    "짝마다의 회전: 흐린 화살표는 회전 전, 진한 화살표는 회전 후",
    "Each pair: before (pale) and after (dark)",
  ],
  "step.caption.scores": ["점수", "score"],
  "step.caption.weight": ["가중치", "weight"],
  "step.caption.power": ["e^(점수 − 최댓값)", "e^(score − highest)"],
  "step.caption.masked": ["미래 토큰: 마스킹됨, −∞", "future tokens: masked, −∞"],
  "step.caption.attention": ["어텐션", "attention"],
  "step.caption.mlp": ["MLP", "MLP"],
  "step.caption.residual": ["이후의 x", "x after it"],
  "step.caption.layer": ["층 {n}", "layer {n}"],
  "step.caption.logit": ["로짓", "logit"],
  "step.caption.probability": ["확률", "probability"],
  "step.caption.drawn": ["뽑을 때의 확률", "probability when drawn"],
  "step.caption.cut": ["제외", "cut off"],
  "step.caption.rest": ["나머지", "the rest"],
  "step.caption.active": [
    "{all}개 가운데 {n}개의 절댓값이 0.1보다 큽니다.",
    "{n} of {all} have an absolute value above 0.1.",
  ],
  "step.caption.window": ["이 단계에서 읽는 토큰 {n}개", "The {n} tokens that this step reads"],
  "step.caption.table": ["임베딩 표의 {id}번 행", "row {id} of the embedding table"],
  "step.name.table": ["임베딩 표", "embedding table"],
  "step.caption.kept": ["뽑힐 수 있는 토큰 {n}개", "{n} tokens may be drawn"],

  // --- sums that are checked, and what a picture says in words ---
  "step.check.input": [
    "임베딩의 합은 층 0의 입력과 같습니다(최대 차이 {here}).",
    "The sum is the input of layer 0 (largest difference {here}).",
  ],
  "step.check.turn": [
    "회전은 길이를 바꾸지 않습니다: 회전 전 ‖q‖ = {model}, 회전 후 {here}.",
    "A rotation keeps the length: ‖q‖ = {model} before it, {here} after it.",
  ],
  "step.check.score": [
    "q·k ÷ √D = {dot} ÷ {root} = {here}. 모델의 점수는 {model}입니다.",
    "q·k ÷ √D = {dot} ÷ {root} = {here}. The score of the model is {model}.",
  ],
  "step.check.weight": [
    "{power} ÷ {sum} = {here}. 모델의 가중치는 {model}입니다.",
    "{power} ÷ {sum} = {here}. The weight of the model is {model}.",
  ],
  "step.check.one": ["모든 가중치의 합은 {here}입니다.", "All weights add up to {here}."],
  "step.check.values": [
    "Σ 가중치 · v는 헤드의 출력과 같습니다(최대 차이 {here}).",
    "Σ weight · v is the output of the head (largest difference {here}).",
  ],
  "step.check.join": [
    "헤드 {head}의 출력은 결합한 벡터의 {from}번~{to}번 숫자입니다(최대 차이 {here}).",
    "The output of head {head} is numbers {from} to {to} of the joined vector (largest difference {here}).",
  ],
  "step.check.residual": [
    "더한 벡터는 모델의 잔차 스트림과 같습니다(최대 차이 {here}).",
    "The sum is the residual stream of the model (largest difference {here}).",
  ],
  "step.check.probability": [
    "e^{logit} ÷ Σ e^로짓 = {here}. 모델의 확률은 {model}입니다.",
    "e^{logit} ÷ Σ e^logit = {here}. The probability of the model is {model}.",
  ],
  "step.check.agrees": ["일치", "agrees"],
  "step.check.differs": ["불일치", "differs"],
  "step.sum.vector": [
    "{name}: 숫자 {n}개, 길이 {length}, 가장 작은 값 {least}, 가장 큰 값 {most}.",
    "{name}: {n} numbers, length {length}, from {least} to {most}.",
  ],
  "step.sum.keys": ["가중치가 가장 큰 토큰: {list}.", "The largest weights: {list}."],
  "step.sum.layer": ["층 {n}: 어텐션 {attention}, MLP {mlp}", "layer {n}: attention {attention}, MLP {mlp}"],
  "step.sum.tokens": ["확률이 가장 높은 토큰: {list}.", "The most probable tokens: {list}."],
});
