"""Muon의 직교화

행렬의 특잇값 분해가 U S Vᵀ일 때 Muon은 U Vᵀ에 가까운 행렬을 갱신 방향으로 씁니다. 특잇값이 모두 1에 가까워지므로 모든
방향으로 비슷한 만큼 움직입니다. 특잇값 분해는 느리므로 행렬곱만 쓰는 뉴턴–슐츠 반복으로 구합니다.

    1. 행이 열보다 많으면 전치합니다. x xᵀ가 작은 행렬이 됩니다.
    2. x를 프로베니우스 노름으로 나눕니다. 모든 특잇값이 1 이하가 됩니다.
    3. G = x xᵀ,  x = a x + (b G + c G G) x를 다섯 번 반복합니다. 특잇값 s마다 s → a s + b s³ + c s⁵를 계산하는 것과
       같습니다.
    4. 1에서 전치했으면 다시 전치합니다.

영행렬이 들어오면 영행렬을 반환하세요. 그래서 노름에 1e-7을 더하고 나눕니다. torch.linalg.svd는 쓰지 마세요.

- - -

The orthogonalisation of Muon

If U S Vᵀ is the singular value decomposition of a matrix, Muon takes a matrix near U Vᵀ as the direction of the
update. Its singular values are near 1, so the parameters move by about the same amount in all directions. The
decomposition is slow. The Newton–Schulz iteration needs only matrix products:

    1. If there are more rows than columns, transpose. x xᵀ is then a small matrix.
    2. Divide x by its Frobenius norm. All singular values are then at most 1.
    3. Do five times: G = x xᵀ,  x = a x + (b G + c G G) x. For each singular value s this computes
       s → a s + b s³ + c s⁵.
    4. Transpose back if step 1 transposed.

A zero matrix gives a zero matrix, so add 1e-7 to the norm before dividing. Do not use torch.linalg.svd.
"""

from torch import Tensor

a, b, c = 3.4445, -4.7750, 2.0315


def orthogonalise(matrix: Tensor) -> Tensor:
    """모양이 (행, 열)로 같고 특잇값이 1에 가까운 행렬을 반환합니다.

    - - -

    Return a matrix of the same shape, (rows, columns), whose singular values are near 1.
    """
    # <solution>
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x
    # </solution>
