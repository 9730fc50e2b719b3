"""Stops containers beside everything else: a grace time may last minutes."""

import logging
import threading
from collections.abc import Callable

from headway.errors import HeadwayError

log = logging.getLogger(__name__)


class Stops:
    """Stops containers, each in a thread of its own, none twice at once."""

    def __init__(self, on_end: Callable[[], None] = lambda: None) -> None:
        """Call *on_end*, from that thread, whenever one has ended."""
        self._on_end = on_end
        self._threads: dict[tuple[str, str], threading.Thread] = {}
        self._lock = threading.Lock()

    def begin(self, container: str, stop: Callable[[], None], how: str = "") -> None:
        """Have *stop* stop the container, unless that is going on, *how* it is done now."""
        key = container, how
        with self._lock:
            if key in self._threads:
                return
            self._threads[key] = thread = threading.Thread(
                target=self._stop, args=(key, stop), name=f"stop {container}", daemon=True
            )
        log.warning("container %s is being stopped", container)
        thread.start()

    def wait(self) -> None:
        """Wait until those that were begun have ended."""
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            thread.join()

    def _stop(self, key: tuple[str, str], stop: Callable[[], None]) -> None:
        container, _ = key
        try:
            stop()
        except HeadwayError as error:
            log.warning("container %s was not stopped: %s; tried again", container, error)
        except Exception:  # a thread of a supervisor: without the trace nobody would hear of it
            log.exception("container %s was not stopped; tried again", container)
        finally:
            with self._lock:
                del self._threads[key]
            self._on_end()
