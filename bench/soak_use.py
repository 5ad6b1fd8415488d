from soak_jobs import Soak
def second(soak: Soak, count: int) -> None: pass
def use(soak: Soak, count: int) -> None: pass
