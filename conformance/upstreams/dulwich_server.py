"""Serves the repositories of a folder by dulwich, over git:// and HTTP: FOLDER GIT_PORT HTTP_PORT."""

import os
import socketserver
import sys
import threading
from wsgiref.simple_server import WSGIServer, make_server

from dulwich.server import FileSystemBackend, TCPGitServer
from dulwich.web import WSGIRequestHandlerLogger, make_wsgi_chain


class ThreadedServer(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Backend(FileSystemBackend):
    """Takes the paths of URLs as those below the folder."""

    def open_repository(self, path):
        return super().open_repository(os.fsdecode(path).lstrip("/"))


folder, git_port, http_port = sys.argv[1:]
backend = Backend(folder)
daemon = TCPGitServer(backend, "127.0.0.1", int(git_port))
threading.Thread(target=daemon.serve_forever, daemon=True).start()
make_server(
    "127.0.0.1", int(http_port), make_wsgi_chain(backend), ThreadedServer, WSGIRequestHandlerLogger
).serve_forever()
