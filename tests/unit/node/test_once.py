"""A signed request is answered once, however many come."""

from headway.node.file_server import Once


def test_a_request_is_answered_once() -> None:
    once = Once()
    assert [once.take("a", 100), once.take("b", 100), once.take("a", 100)] == [True, True, False]


def test_what_is_forgotten_is_not_answered_again() -> None:
    once = Once(most=100)
    sent = [(f"{number}", 1000 + number) for number in range(1000)]
    assert all(once.take(*each) for each in sent)
    assert len(once._nonces) == 100
    assert not any(once.take(*each) for each in sent)
    assert once.take("later", 2001)
