"""One secret per clone, for its user alone, that is never believed when others could have set it."""

import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline import secret


def test_of__is_drawn_once_and_for_this_user_alone(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: secret.of(tmp_path / "one"), range(32)))
    assert len(found) == 1 and found != {secret.of(tmp_path / "other")}
    folder = tmp_path / "one" / ".prefect"
    assert [path.name for path in folder.iterdir()] == ["secret"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "secret").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.chmod(0o644), "others may read"),
        (lambda file: file.chmod(0o666), "others may write"),
        (lambda file: file.write_text(""), "holds 0 characters and no secret"),
        (lambda file: file.write_text("a:b"), "holds 3 characters and no secret"),
        (lambda file: (file.rename(file.parent / "x"), file.symlink_to("x")), "is a link"),
        (lambda file: (file.unlink(), file.mkdir(0o700)), "is no file"),
        (lambda file: file.parent.chmod(0o777), "others may write"),
    ],
)
def test_of__what_others_could_know_or_set_is_refused(tmp_path, damage, message):
    secret.of(tmp_path)
    damage(tmp_path / ".prefect" / "secret")
    with pytest.raises(ValueError, match=message):
        secret.of(tmp_path)


def test_issued__only_by_who_knows_the_secret():
    word = secret.ticket("polygrain:a")
    assert secret.issued("polygrain:a", word) == int(word.split(".")[0])
    assert secret.issued("polygrain:b", word) is None
    proof = secret.sign("polygrain:a", "proof", word.split(".")[0])
    for forged in ("", ".", "x", f"1{word}", word[:-1], f"{word.split('.')[0]}.{proof}", f"²{word}", f"{word}é"):
        assert secret.issued("polygrain:a", forged) is None
