"""A TCP proxy that can cut all its connections at any moment: what a failing switch does."""
import selectors
import socket
import threading


class Proxy:
    """Listens on a free port and forwards to `target`. Counts the bytes that went to the target."""

    def __init__(self, target):
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.forwarded = 0
        self.cuts = 0
        self._lock = threading.Lock()
        self._pairs = set()
        self._open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while self._open:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.target, timeout=5)
            except OSError:
                if not self._open:
                    return
                continue
            for end in (near, far):  # small answers go on at once
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.add((near, far))
            threading.Thread(target=self._pump, args=(near, far), daemon=True).start()

    def _pump(self, near, far):
        with selectors.DefaultSelector() as selector:
            selector.register(near, selectors.EVENT_READ, far)
            selector.register(far, selectors.EVENT_READ, near)
            try:
                while True:
                    for key, _ in selector.select():
                        data = key.fileobj.recv(65536)
                        if not data:
                            return
                        key.data.sendall(data)
                        if key.data is far:
                            self.forwarded += len(data)
            except (OSError, ValueError):
                return
            finally:
                self._drop(near, far)

    def _drop(self, near, far):
        with self._lock:
            self._pairs.discard((near, far))
        for s in (near, far):
            try:
                # An abrupt end: what is under way is lost.
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()

    def cut(self):
        with self._lock:
            pairs = list(self._pairs)
        for near, far in pairs:
            self._drop(near, far)
        self.cuts += len(pairs)
        return len(pairs)

    def close(self):
        self._open = False
        self.listener.close()
        self.cut()
