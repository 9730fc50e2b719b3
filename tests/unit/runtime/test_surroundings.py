"""What programs find around them: a name for their uid, and a language where the image has none."""

from headway.runtime.surroundings import surroundings, with_user

_PASSWD = "root:x:0:0:root:/root:/bin/sh\nbroken\n"


def test_a_uid_without_a_name_gets_one_and_others_stay() -> None:
    named = with_user(_PASSWD, 2_100_000_000, 7, "/tmp")
    assert named == f"{_PASSWD}headway:x:2100000000:7:headway:/tmp:/bin/sh\n"
    assert with_user("", 5, 7, "/tmp") == "headway:x:5:7:headway:/tmp:/bin/sh\n"
    assert with_user(named, 2_100_000_000, 7, "/elsewhere") == named
    assert with_user(_PASSWD, 0, 0, "/tmp") == _PASSWD


def test_caches_lie_in_the_home_and_the_language_of_an_image_stays() -> None:
    found = surroundings("/tmp", {"PATH": "/bin"})
    assert found["XDG_CACHE_HOME"] == "/tmp/.cache"
    assert found["LANG"] == "C.UTF-8"
    assert "LANG" not in surroundings("/tmp", {"LC_ALL": "de_DE.UTF-8"})
