"""Work done ahead stays within its bound, comes in order, and ends."""

import time

import pytest

from tasks.metatrain.prefetch import Prefetched


def test_it_works_ahead_but_not_further_than_asked():
    made = []

    def numbers():
        for number in range(100):
            made.append(number)
            yield number

    with Prefetched(numbers(), 3) as stream:
        assert next(stream) == 0
        deadline = time.monotonic() + 5
        while len(made) < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert len(made) == 5  # one taken, three waiting, one in hand


def test_items_come_in_order_and_then_no_more():
    with Prefetched(range(50), 2) as stream:
        assert list(stream) == list(range(50))
        assert list(stream) == []


def test_what_was_made_before_an_error_comes_before_it():
    def numbers():
        yield 1
        yield 2
        raise ValueError("here")

    stream = Prefetched(numbers(), 5)
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(ValueError, match="here"):
        next(stream)
    assert not stream._thread.is_alive()


@pytest.mark.parametrize("error", [None, ValueError("first")])
def test_a_source_that_cannot_be_closed_does_not_leave_the_consumer_waiting(error):
    class Numbers:
        def __init__(self):
            self.left = 1

        def __iter__(self):
            return self

        def __next__(self):
            if self.left:
                self.left -= 1
                return 1
            raise error or StopIteration

        def close(self):
            raise OSError("cannot be closed")

    stream = Prefetched(Numbers(), 2)
    assert next(stream) == 1
    with pytest.raises(
        OSError if error is None else ValueError, match="cannot be closed" if error is None else "first"
    ):
        next(stream)
    stream._thread.join(5)
    assert not stream._thread.is_alive()


def test_closing_frees_what_the_source_holds():
    freed = []

    def numbers():
        try:
            while True:
                yield 0
        finally:
            freed.append(True)

    with Prefetched(numbers(), 1) as stream:
        next(stream)
    assert freed == [True]
    assert not stream._thread.is_alive()
