"""실패하지 않는 글자 토크나이저

어떤 텍스트도 인코딩할 수 있는 글자 토크나이저를 만드세요. id 0–255는 바이트이고, 256부터는 학습 텍스트에 있는 글자를
코드 포인트 순서로 정렬한 것입니다. 학습 텍스트에 없던 글자는 UTF-8 바이트로 인코딩합니다(바이트 폴백). 그래서 모든
텍스트에서 decode(encode(text)) == text입니다. 다만 깨진 파일에 있는 서로게이트 반쪽(U+D800–U+DFFF)은 글자가 아니어서
UTF-8로 쓸 수 없습니다. 이것은 b"?"로 바꾸세요. 모델은 글자의 일부인 바이트만 출력하기도 합니다. decode는 그런 바이트를
U+FFFD(�)로 바꾸고, 오류를 내지 않아야 합니다.

- - -

A character tokenizer that never fails

Write a character tokenizer that can encode any text. The ids 0–255 are bytes. From 256 on, they are the characters of
the training text, sorted by code point. A character that is not in the training text is encoded as its UTF-8 bytes
(byte fallback). So decode(encode(text)) == text for every text. The exception is a lone surrogate (U+D800–U+DFFF),
which occurs in broken files: it is no character, and UTF-8 cannot write it. Replace it by b"?". A model may also write
only some of the bytes of a character. decode replaces such bytes by U+FFFD (�), and raises no error.
"""


class CharacterTokenizer:
    """모르는 글자는 바이트로 나누는 글자 토크나이저.

    인자:
        text: 학습할 텍스트.

    - - -

    Characters with byte fallback.

    Args:
        text: the training text.
    """

    def __init__(self, text: str) -> None:
        # <solution>
        self.characters = sorted(set(text))
        self.id_of = {character: 256 + place for place, character in enumerate(self.characters)}
        # </solution>

    def encode(self, text: str) -> list[int]:
        """텍스트의 id 목록을 반환합니다.

        - - -

        Return the ids of a text.
        """
        # <solution>
        ids = []
        for character in text:
            if character in self.id_of:
                ids.append(self.id_of[character])
            else:
                ids.extend(character.encode("utf-8", errors="replace"))
        return ids
        # </solution>

    def decode(self, ids: list[int]) -> str:
        """id 목록의 텍스트를 반환합니다.

        - - -

        Return the text of ids.
        """
        # <solution>
        written = bytearray()
        for one in ids:
            if one < 256:
                written.append(one)
            else:
                written.extend(self.characters[one - 256].encode("utf-8", errors="replace"))
        return written.decode("utf-8", errors="replace")
        # </solution>
