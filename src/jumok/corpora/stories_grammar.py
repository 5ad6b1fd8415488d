"""The words, sentences and plots of the built-in tales. `grammar.py` describes the syntax.

House style of the tales: the narrator speaks 해요체; friends talk plainly to one another; elders (`elder`, `family`)
take 께서, 께 and -시-. Speech stands in “ ”. No option may begin like a whole other option of the same choice (the
tests insist: it is what makes the grammar unambiguous), which is why 곰 and 곰돌이 could not both be in one list.
"""

from __future__ import annotations

START = "tale"

WORDS = {
    # The one the tale is about, and the other one.
    "hero": """규리 | 몽실 | 벼리 | 율무 | 쥬디 | 풍월""",
    "friend": """깡총 | 똘이 | 샐리 | 왕눈 | 쿠키 | 탐탐""",
    "animal": """강아지 | 거북이 | 고양이 | 너구리 | 다람쥐 | 반달곰 | 병아리 | 부엉이 | 사슴 | 여우 | 오리 | 토끼 |
        펭귄""",
    "pal": """공작 | 기린 | 까치 | 꾀꼬리 | 낙타 | 노루 | 늑대 | 도마뱀 | 돼지 | 두루미 | 망아지 | 물개 | 백조 |
        뻐꾸기 | 송아지 | 앵무새 | 원숭이 | 제비 | 코끼리 | 판다 | 표범 | 하마 | 호랑이""",
    "place": """개울가 | 공원 | 기차역 | 꽃밭 | 놀이터 | 대나무 숲 | 도서관 | 등대 | 바닷가 | 산기슭 | 언덕 | 우체국 |
        장터 | 텃밭""",
    # The time and the weather, and what one wears or carries in it.
    "day": "월요일 | 화요일 | 수요일 | 목요일 | 금요일 | 토요일 | 일요일",
    "part": "아침 | 낮 | 오후",
    "weather wear": """꽃잎 날리는 = 꽃바구니를 들고 | 낙엽 지는 = 외투를 걸치고 | 눈 내리는 = 털모자를 쓰고 |
        매미 우는 = 잠자리채를 들고 | 무더운 = 얼음물을 들고 | 무지개 뜬 = 사진기를 메고 |
        바람 부는 = 목도리를 두르고 | 비 오는 = 우산을 쓰고 | 서늘한 = 배낭을 메고 | 안개 낀 = 등불을 들고 |
        추운 = 털장갑을 끼고 | 햇볕 따가운 = 밀짚모자를 쓰고""",
    # Things, and dishes that are good in any weather.
    "item": """구슬 | 리본 | 부채 | 인형 | 팽이 | 피리""",
    "snack": """강정 | 곶감 | 군고구마 | 김밥 | 꿀떡 | 누룽지 | 도넛 | 떡볶이 | 만두 | 붕어빵 | 빈대떡 | 빵 |
        사탕 | 샌드위치 | 송편 | 식빵 | 약과 | 어묵 | 엿 | 유과 | 인절미 | 잡채 | 주먹밥 | 찐빵 | 케이크 | 튀김 |
        파전 | 팥빙수 | 피자 | 호두과자 | 호떡""",
    # Elders, and how one addresses them.
    "elder call": """과수원 아저씨 = 아저씨 | 국숫집 아주머니 = 아주머니 | 기와집 할아버지 = 할아버지 |
        꽃집 할머니 = 할머니 | 대장간 아저씨 = 아저씨 | 떡집 할머니 = 할머니 | 목수 아저씨 = 아저씨 |
        바느질방 아주머니 = 아주머니 | 반찬 가게 할머니 = 할머니 | 빵집 아주머니 = 아주머니 |
        사공 아저씨 = 아저씨 | 서당 훈장님 = 훈장님 | 약방 의원님 = 의원님 | 어부 할아버지 = 할아버지 |
        옆집 할아버지 = 할아버지 | 책방 선생님 = 선생님""",
    "number": "한 | 두 | 세 | 네 | 다섯 | 여섯 | 일곱 | 여덟 | 아홉 | 열",
    # Goods with their counters, troubles with their cures, crops with their dishes, callings with their work.
    "goods unit": """고무신 = 켤레 | 공책 = 권 | 국화 = 송이 | 그림책 = 권 | 바지 = 벌 | 붓 = 자루 | 비단 = 필 |
        실 = 타래 | 양말 = 켤레 | 연필 = 자루 | 외투 = 벌 | 우표 = 장 | 운동화 = 켤레 | 이불 = 채 | 장갑 = 켤레 |
        장미 = 송이 | 저고리 = 벌 | 종이 = 장 | 초 = 자루 | 치마 = 벌 | 튤립 = 송이 | 편지지 = 장""",
    "trouble fix": """가시에 찔려 = 가시를 뽑아 | 감기에 걸려 = 따뜻한 차를 끓여 | 길을 잃어 = 지도를 그려 |
        다리를 다쳐 = 붕대를 감아 | 목이 말라 = 샘물을 떠다 | 문이 잠겨 = 창문을 열어 | 배가 고파 = 도시락을 나누어 |
        숙제가 어려워 = 모르는 문제를 풀어 | 연이 나무에 걸려 = 나무에 올라가 연을 내려 | 이가 아파 = 약을 구해 |
        잠이 안 와 = 자장가를 불러 | 짐이 무거워 = 수레를 밀어""",
    "crop dish": """감자 = 감자전 | 고구마 = 맛탕 | 녹두 = 빈대떡 | 당근 = 당근 케이크 | 딸기 = 딸기잼 |
        메밀 = 막국수 | 무 = 깍두기 | 밀 = 칼국수 | 배추 = 김치 | 콩 = 두부 | 팥 = 팥죽 | 호박 = 호박죽""",
    "job work": """가수 = 노래를 불렀어요 | 기자 = 기사를 썼어요 | 도예가 = 항아리를 빚었어요 |
        무용가 = 춤을 추었어요 | 사진가 = 사진을 찍었어요 | 시인 = 시를 썼어요 | 어부 = 그물을 던졌어요 |
        요리사 = 국을 끓였어요 | 재봉사 = 옷을 지었어요 | 정원사 = 꽃을 가꾸었어요 | 제빵사 = 빵을 구웠어요 |
        화가 = 그림을 그렸어요""",
    "moon": "그믐달 | 반달 | 보름달 | 샛별 | 아기별 | 조각달 | 초승달",
    "game": """가위바위보 | 공기놀이 | 구슬치기 | 끝말잇기 | 널뛰기 | 다트 | 딱지치기 | 바둑 | 비사치기 |
        수수께끼 | 씨름 | 오목 | 윷놀이 | 장기 | 제기차기 | 줄넘기 | 체스 | 탁구 | 투호 | 팔씨름 | 팽이치기""",
}

PHRASES = {
    "tale": "{opening} {plot} {closing}",
    # Someone sets out. Every opening introduces the hero, the weather and the place.
    "opening": """{weather} {day} {part}, {trait} {animal} {hero:은/는} {weather.wear} {place:으로/로} {went}. |
        {weather} {day} {part:이었/였}어요. {trait} {animal} {hero:은/는} {weather.wear} {place:으로/로} {went}.
        | {trait} {animal} {hero:은/는} {weather} {day} {part}에 {weather.wear} {place:으로/로} {went}. | 옛날에
        {hero:이라는/라는} {trait} {animal:이/가} {weather} 날 {weather.wear} {place:으로/로} {went}.""",
    "trait": """겁 많은 | 귀여운 | 깔끔한 | 꼼꼼한 | 노래 잘하는 | 눈 큰 | 느긋한 | 다정한 | 덜렁대는 | 똑똑한 |
        마음씨 고운 | 말수 적은 | 먹보 | 멋쟁이 | 명랑한 | 부지런한 | 빼빼 마른 | 상냥한 | 성급한 | 수줍은 |
        슬기로운 | 심심한 | 씩씩한 | 얌전한 | 어린 | 엉뚱한 | 용감한 | 웃음 많은 | 의젓한 | 잠꾸러기 |
        장난꾸러기 | 재주 많은 | 정 많은 | 착한 | 키 작은 | 털털한 | 통통한 | 호기심 많은""",
    "went": """걸어갔어요 | 급히 갔어요 | 길을 나섰어요 | 나갔어요 | 나들이를 갔어요 | 내달렸어요 |
        느릿느릿 걸었어요 | 달려갔어요 | 뛰어갔어요 | 발길을 옮겼어요 | 사뿐사뿐 걸었어요 | 신나게 갔어요 |
        천천히 갔어요 | 총총 걸었어요 | 향했어요 | 휘파람을 불며 갔어요""",
    "plot": "{lost} | {help} | {contest} | {errand} | {harvest} | {calling} | {quarrel} | {birthday}",
    # Something is lost, and a friend knows where it is.
    "lost": """{meanwhile} {precious} {color} {item:이/가} {gone}. {clue} {hero:은/는} {item:을/를} {clasping}
        {rejoiced}.""",
    "meanwhile": "걷다 보니 | 그런데 | 놀다 보니 | 문득 보니 | 한참 뒤",
    "precious": """귀한 | 낡은 | 손때 묻은 | 어여쁜 | 새로 산 | 선물로 받은 | 소중한 | 아끼던 | 오래된 |
        자그마한 | 직접 만든 | 커다란 | 하나뿐인""",
    "color": """갈색 | 금색 | 까만 | 남색 | 노란 | 무지개색 | 밤색 | 보라색 | 분홍색 | 빨간 | 연두색 | 은색 |
        자주색 | 주황색 | 초록색 | 파란 | 하늘색 | 하얀 | 회색""",
    "gone": "보이지 않았어요 | 사라졌어요 | 없어졌어요 | 온데간데없었어요",
    "clue": """“{friend:아/야}, 내 {item} 못 봤니?” {trait} {pal} {friend:이/가} {gently} 대답했어요. “{landmark}
        {beside}에 있던데.” | {trait} {pal} {friend:이/가} {gently} 말했어요. “{hero:아/야}, 네 {item:은/는}
        {landmark} {beside}에 있어.” | {anxiously} 찾는데 {trait} {pal} {friend:이/가} {gently} 말했어요.
        “{landmark} {beside}에 있어!”""",
    "anxiously": """걱정스레 | 낑낑대며 | 다급하게 | 두리번거리며 | 발을 구르며 | 여기저기 | 울먹이며 |
        한숨을 쉬며 | 허둥지둥""",
    "landmark": """굴뚝 | 그네 | 나룻배 | 느티나무 | 돌탑 | 미끄럼틀 | 바위 | 밤나무 | 수레 | 울타리 | 의자 |
        자전거 | 장독 | 짚더미 | 책상 | 커튼 | 통나무 | 평상 | 항아리 | 허수아비""",
    "beside": "뒤 | 밑 | 앞 | 옆",
    "clasping": "건네받고 | 꼭 안고 | 되찾고 | 손에 들고 | 찾고는 | 품에 안고",
    "rejoiced": """고마워했어요 | 노래를 불렀어요 | 만세를 불렀어요 | 무척 기뻐했어요 | 빙그레 웃었어요 |
        춤을 추었어요 | 폴짝폴짝 뛰었어요 | 활짝 웃었어요""",
    # Someone is in trouble; the cause decides the cure.
    "help": """{meeting} {trouble} {upset} 있었어요. “{comfort}” {hero:은/는} {readily} {trouble.fix} 주었어요.
        {thanks}""",
    "meeting": """그곳에는 {trait} {pal} {friend:이/가} | 길에서 만난 {trait} {pal} {friend:은/는} |
        마침 {trait} {pal} {friend:이/가}""",
    "upset": """고개를 숙이고 | 눈물짓고 | 끙끙대고 | 넋을 놓고 | 발을 구르고 | 울고 | 울상을 짓고 | 쩔쩔매고 |
        풀이 죽어 | 한숨을 쉬고 | 훌쩍이고""",
    "comfort": """걱정하지 마. | 겁내지 마. | 나만 믿어. | 내가 도와줄게. | 마음 놓아. | 이제 괜찮아. |
        잠깐만 기다려. | 힘을 내.""",
    "readily": "곧바로 | 금세 | 기꺼이 | 서둘러 | 선뜻 | 손수 | 얼른 | 열심히 | 재빨리 | 정성껏 | 친절히 | 흔쾌히",
    "thanks": """“고마워, {hero:아/야}!” {friend:은/는} {precious} {color} {item:을/를} 주었어요. |
        {friend:은/는} {gratefully} {precious} {color} {item:을/를} 내밀었어요. | {friend:은/는} {gratefully}
        {taste} {snack:을/를} 건넸어요.""",
    "gratefully": """고개를 끄덕이며 | 고맙다며 | 꾸벅 인사하며 | 눈물을 닦으며 | 방긋 웃으며 | 손을 꼭 잡으며 |
        은혜를 갚겠다며""",
    "taste": """갓 만든 | 귀한 | 맛 좋은 | 맛깔스러운 | 먹음직한 | 소문난 | 손수 만든 | 아껴 둔 | 유명한 |
        정성 어린 | 처음 보는 | 푸짐한""",
    # A contest: one wins, the other one takes it well.
    "contest": """그곳에서 {trait} {pal} {friend:과/와} {game} 시합을 했어요. {number} 판을 {fiercely} 겨룬 끝에
        {outcome} 둘은 {taste} {snack:을/를} {shared}.""",
    "fiercely": """막상막하로 | 숨 가쁘게 | 쉬지 않고 | 신나게 | 아슬아슬하게 | 엎치락뒤치락 | 온 힘을 다해 |
        웃으며 | 즐겁게 | 치열하게""",
    "outcome": """{hero:이/가} 이겼어요. 진 {friend:은/는} {gently} 말했어요. “{hero:아/야}, {praise}!” |
        {friend:이/가} 이겼어요. 진 {hero:은/는} {gently} 말했어요. “{friend:아/야}, {praise}!”""",
    "praise": "내가 졌어 | 네가 최고야 | 놀라운걸 | 대단하다 | 또 겨루자 | 멋지다 | 잘하는구나 | 축하해",
    "shared": "나누어 먹었어요 | 맛있게 먹었어요 | 반씩 나누었어요 | 배불리 먹었어요 | 사이좋게 먹었어요",
    # An errand: so many of this, with the right counter, brought back as asked.
    "errand": """{elder}께서 {kindly} 부탁하셨어요. “{hero:아/야}, {quality} {color} {goods} {number}
        {goods.unit} {fetch}?” {hero:은/는} {goods} {number} {goods.unit:을/를} {carrying} {returned}.
        “{approving}.” {elder.call}께서 {taste} {snack:을/를} 주셨어요.""",
    "kindly": "급히 | 넌지시 | 다정하게 | 반갑게 | 빙긋 웃으며 | 손짓하며 | 조심스레 | 활짝 웃으며",
    "quality": "값싼 | 고운 | 좋은 | 질 좋은 | 튼튼한 | 수수한 | 쓸 만한 | 예쁜",
    "fetch": "가져다주겠니 | 구해 주겠니 | 사 오겠니 | 사다 주겠니 | 찾아 주겠니",
    "carrying": """가방에 넣어 | 둘러메고 | 등에 지고 | 머리에 이고 | 바구니에 담아 | 보자기에 싸서 |
        상자에 담아 | 손에 들고 | 수레에 싣고 | 품에 안고""",
    "returned": "곧 돌아왔어요 | 금세 가져왔어요 | 달려왔어요 | 뛰어왔어요 | 씩씩하게 왔어요 | 한걸음에 왔어요",
    "approving": "고맙구나 | 기특하구나 | 대견하구나 | 빠르기도 하지 | 애썼구나 | 장하구나 | 착하구나",
    # A harvest: the crop decides the dish.
    "harvest": """{elder}께서 {sound} {crop:을/를} 주셨어요. {hero:은/는} {trait} {pal} {friend:과/와}
        {crop:을/를} 심고 {tended}. {weeks} 뒤 둘은 {fine} {crop.dish:을/를} 만들어 드렸어요. “{tasty}!”
        {elder.call}께서 {delighted}.""",
    "sound": "갓 거둔 | 귀한 | 남은 | 싱싱한 | 아껴 둔 | 여문 | 토실토실한 | 튼실한",
    "tended": """거름을 주었어요 | 김을 맸어요 | 물을 주었어요 | 밤낮으로 지켰어요 | 벌레를 잡았어요 |
        울타리를 둘렀어요 | 정성껏 돌보았어요 | 허수아비를 세웠어요""",
    "weeks": "넉 달 | 두 달 | 백 일 | 석 달 | 한 철",
    "fine": "근사한 | 기막힌 | 맛 좋은 | 맛깔스러운 | 먹음직한 | 색다른 | 특별한 | 푸짐한",
    "tasty": "고맙구나 | 군침이 도는구나 | 기특하구나 | 꿀맛이로구나 | 솜씨가 좋구나 | 참 맛있구나 | 훌륭하구나",
    "delighted": """감탄하셨어요 | 껄껄 웃으셨어요 | 눈을 크게 뜨셨어요 | 무릎을 치셨어요 | 무척 기뻐하셨어요 |
        춤을 추셨어요 | 칭찬하셨어요 | 환하게 웃으셨어요""",
    # A calling: what one wants to be decides what one practises.
    "calling": """그곳에서 본 {job:이/가} 부러워 {hero:은/는} {often} {job.work}. “{cheer}!” {trait} {pal}
        {friend:이/가} {gently} 응원했어요. {years} 뒤 {hero:은/는} {renowned} {job:이/가} 되었어요.""",
    "often": """날마다 | {day}마다 | 밤늦도록 | 새벽부터 | 쉬지 않고 | 아침마다 | 열심히 | 온종일 | 틈만 나면 |
        하루도 빠짐없이""",
    "cheer": """꼭 {job:이/가} 되렴 | 꿈은 이루어져 | 벌써 {job:이로구나/로구나} | 솜씨가 느는구나 |
        조금만 더 힘내 | 포기하지 마, {hero:아/야} | 훌륭해, {hero:아/야}""",
    "years": "구 년 | 네 해 | 다섯 해 | 두 해 | 몇 해 | 백 일 | 삼 년 | 십 년 | 일 년 | 칠 년",
    "renowned": "뛰어난 | 멋진 | 부지런한 | 소문난 | 손꼽히는 | 으뜸가는 | 이름난 | 존경받는 | 진짜 | 행복한",
    # A quarrel over one thing, and how to share it.
    "quarrel": """그곳에서 {trait} {pal} {friend:과/와} {precious} {color} {item:을/를} 두고 {fought}. “{mine}!”
        {hero:이/가} {angrily} 외치자 {friend:은/는} {hurt}. {afterwards} {hero:은/는} {humbly} 사과했어요. 둘은
        {item:을/를} {together} 쓰기로 했어요.""",
    "fought": "다투었어요 | 말다툼했어요 | 아옹다옹했어요 | 옥신각신했어요 | 티격태격했어요",
    "mine": "나도 쓸래 | 내 거야 | 내가 먼저야 | 돌려줘 | 비켜 | 손대지 마 | 욕심쟁이",
    "angrily": "거칠게 | 눈을 흘기며 | 발을 구르며 | 씩씩거리며 | 얼굴을 붉히며 | 주먹을 쥐고 | 크게",
    "hurt": "고개를 돌렸어요 | 눈물을 흘렸어요 | 뒤돌아섰어요 | 말이 없었어요 | 울음을 터뜨렸어요 | 입을 삐죽였어요",
    "afterwards": "그러다 | 얼마 뒤 | 이윽고 | 잠시 뒤 | 조금 뒤 | 하지만 곧",
    "humbly": """공손히 | 나지막이 | 다정히 | 머리를 긁적이며 | 먼저 | 손을 내밀며 | 수줍게 | 어렵사리 |
        울먹이며 | 정중히 | 조용히 | 진심으로""",
    "together": "같이 | 번갈아 | 사이좋게 | 서로 아껴 | 하루씩 | 함께",
    # A birthday.
    "birthday": """그날은 {trait} {pal} {friend}의 생일이었어요. {hero:은/는} {wrapped} {color} {item:과/와}
        {taste} {snack:을/를} 주었어요. “{wish}!” {friend:은/는} {moved} {hero:을/를} 안았어요. 둘은 {until}
        {played}.""",
    "wrapped": """고이 간직한 | 곱게 포장한 | 끈으로 묶은 | 남몰래 준비한 | 밤새 만든 | 상자에 담은 |
        용돈으로 산 | 직접 고른""",
    "wish": "건강하게 자라렴 | 네가 주인공이야 | 늘 행복하렴 | 우리 늘 함께하자 | 축하해, {friend:아/야}",
    "moved": "기뻐하며 | 깜짝 놀라며 | 눈물을 글썽이며 | 방긋 웃으며 | 수줍어하며 | 얼굴을 붉히며 | 환호하며",
    "until": "달이 뜰 때까지 | 밤이 깊도록 | 저녁 늦게까지 | 지칠 때까지 | 해가 질 때까지",
    "played": """그림을 그렸어요 | 노래를 불렀어요 | 뛰어놀았어요 | 소꿉놀이를 했어요 | 수수께끼를 풀었어요 |
        숨바꼭질을 했어요 | 이야기꽃을 피웠어요 | 춤을 추었어요""",
    # How one speaks to a friend.
    "gently": """나지막이 | 너그럽게 | 다정하게 | 또박또박 | 따뜻하게 | 밝게 | 부드럽게 | 살며시 | 상냥하게 |
        소곤소곤 | 수줍게 | 쑥스럽게 | 씩씩하게 | 우렁차게 | 의젓하게 | 조용히 | 진심으로 | 차분하게 | 천천히 |
        친절하게 | 큰 소리로 | 힘차게""",
    # The end: a dream, a memory, the moon, a report at home, ...
    "closing": """그날 밤 {hero:은/는} {company} {adventure} 꿈을 꾸었어요. | 그 뒤로 {hero:은/는} {regularly}
        이날을 이야기했어요. | 그 뒤로 {hero:은/는} 잠들 때면 이 일을 떠올렸어요. | 어느덧
        {moon:이/가} 떠올라 온 마을을 {lit} 비추었어요. | 집에 온 {hero:은/는} {plenty} {supper} 먹고
        {rested}. | 집에 온 {hero:은/는} {family}께 {vividly} 이야기해 드렸어요. | {hero:은/는} 일기장에
        ‘{lesson}’라고 {noted}. | 가슴이 벅찬 {hero:은/는} 이 일을 {forever} 잊지 않았어요.""",
    "regularly": """날마다 | {day}마다 | 아침마다 | 이따금 | 자주 | 저녁마다 | 종종 | 철마다 | 틈만 나면 |
        하루도 빠짐없이""",
    "company": """거인과 | 고래와 | 공룡과 | 나비와 | 난쟁이와 | 눈사람과 | 도깨비와 | 별과 | 산신령과 | 선녀와 |
        용과 | 인어와 | 임금님과 | 천사와 | 해님과 | 허수아비와""",
    "adventure": """구름 위를 걷는 | 기차를 모는 | 꽃밭을 거니는 | 노래하는 | 달나라에 가는 | 무지개를 건너는 |
        바닷속을 누비는 | 별을 따는 | 보물을 찾는 | 숨바꼭질하는 | 씨름하는 | 잔치를 여는 | 춤추는 | 하늘을 나는""",
    "lit": "고요히 | 곱게 | 말없이 | 부드럽게 | 은은하게 | 환하게 | 희미하게",
    "plenty": "남은 | 따뜻한 | 맛있는 | 엄마표 | 특별한 | 푸짐한",
    "supper": """국밥을 | 김치찌개를 | 된장국을 | 떡국을 | 라면을 | 만둣국을 | 미역국을 | 볶음밥을 | 비빔밥을 |
        잔치국수를 | 카레를 | 콩나물밥을""",
    "rested": """그림책을 읽었어요 | 늘어지게 잤어요 | 달을 구경했어요 | 설거지를 했어요 | 음악을 들었어요 |
        일찍 잠들었어요 | 푹 쉬었어요""",
    "family": "고모 | 아버지 | 어머니 | 외할머니 | 이모 | 할머니 | 할아버지",
    "vividly": "도란도란 | 또박또박 | 몇 번이고 | 신나게 | 자랑스럽게 | 자세히 | 조잘조잘 | 하나하나",
    "lesson": """나는 행복하다 | 내일이 기다려진다 | 또 가고 싶다 | 마음이 따뜻해졌다 | 세상은 넓다 |
        오늘은 참 즐거웠다 | 오래 기억하고 싶다 | 웃을 일이 많았다 | 좋은 하루였다 | 하루가 짧았다""",
    "noted": "꾹꾹 눌러 썼어요 | 써 두었어요 | 썼어요 | 적었어요",
    "forever": "결코 | 두고두고 | 언제까지나 | 오래오래 | 평생 | 한시도",
}
