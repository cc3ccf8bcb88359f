"""A small reverse proxy that serves a page under a path prefix, as nginx would."""

import http.client
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOP = {"transfer-encoding", "connection", "keep-alive", "content-length"}


@contextmanager
def behind_prefix(url, prefix):
    """Address of the page behind `prefix`; other paths are not found."""
    target = urlsplit(url)

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self):
            if not self.path.startswith(prefix):
                return self.send_error(404)
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            link = http.client.HTTPConnection(target.hostname, target.port, timeout=60)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
            link.request(self.command, self.path.removeprefix(prefix) or "/", body, headers)
            answer = link.getresponse()
            self.send_response(answer.status)
            for key, value in answer.getheaders():
                if key.lower() not in HOP:
                    self.send_header(key, value)
            self.send_header("Connection", "close")
            self.end_headers()
            try:
                while data := answer.read1(65536):
                    self.wfile.write(data)
                    self.wfile.flush()
            except OSError:
                pass  # the browser has gone: closing the link tells the page
            finally:
                link.close()
                self.close_connection = True

        do_GET = do_POST = do_HEAD = pass_on

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}{prefix}/"
    server.shutdown()
