"""채팅 템플릿

대화를 모델의 입력으로 바꾸세요. 메시지마다 역할의 특수 토큰, 내용의 토큰, 끝 토큰이 차례로 옵니다. 마지막 메시지
뒤에는 assistant의 특수 토큰을 붙입니다. 모델은 그 뒤에 답을 씁니다. 내용은 메시지마다 따로 인코딩하세요. 특수 토큰을
글자로 써서 함께 인코딩하면 사용자가 특수 토큰을 만들 수 있습니다.

- - -

A chat template

Turn a conversation into the input of a model. Each message becomes the special token of its role, the tokens of its
content and the end token, in this order. Behind the last message stands the special token of the assistant. The model
writes its answer there. Encode each content by itself: if special tokens are written as text and encoded together
with it, a user can make special tokens.
"""

from collections.abc import Callable


def encode_chat(
    messages: list[tuple[str, str]], role_ids: dict[str, int], end: int, encode: Callable[[str], list[int]]
) -> list[int]:
    """프롬프트의 id를 반환합니다.

    인자:
        messages: 역할("system", "user", "assistant")과 내용의 쌍.
        role_ids: 역할마다 특수 토큰의 id.
        end: 메시지가 끝났음을 나타내는 토큰의 id.
        encode: 글의 id를 반환합니다.

    - - -

    Return the ids of the prompt.

    Args:
        messages: pairs of a role ("system", "user" or "assistant") and a content.
        role_ids: the id of the special token of each role.
        end: the id of the token that ends a message.
        encode: returns the ids of a text.
    """
    # <solution>
    ids = []
    for role, content in messages:
        ids += [role_ids[role], *encode(content), end]
    return [*ids, role_ids["assistant"]]
    # </solution>
