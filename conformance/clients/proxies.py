"""Stock git through reverse proxies in front of weir's HTTP."""

import contextlib
import os
import shutil

from common import Pool, Skipped, apache, need, new_upstream, port, process, run, stock
from conversations import COLUMNS, Git, cells, history

NGINX = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
{user}
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port}{tls};
        ssl_certificate {folder}/certificate.pem;
        ssl_certificate_key {folder}/key.pem;
        location {path} {{
            proxy_pass http://127.0.0.1:{behind}/;
            {more}
        }}
    }}
}}
"""
UNBUFFERED = "proxy_http_version 1.1; proxy_buffering off; proxy_request_buffering off;"
APACHE = """
LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so
LoadModule proxy_http_module /usr/lib/apache2/modules/mod_proxy_http.so
ProxyPass "/weir/" "http://127.0.0.1:{behind}/"
ProxyPassReverse "/weir/" "http://127.0.0.1:{behind}/"
"""
HAPROXY = """
defaults
    mode {mode}
    {more}
    timeout connect 10s
    timeout client 60s
    timeout server 60s
frontend all
    bind 127.0.0.1:{port}
    default_backend weir
backend weir
    server weir 127.0.0.1:{behind} {server}
"""
# As the book has it (docs/book/src/serving.md).
FORWARDED = (
    UNBUFFERED
    + "proxy_set_header Host $http_host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; "
    "client_max_body_size 0;"
)


@contextlib.contextmanager
def nginx(folder, behind, tls="", path="/", more=""):
    need("nginx", "openssl")
    os.makedirs(folder)
    number = port()
    certificate = f"{folder}/certificate.pem"
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
        "-keyout", f"{folder}/key.pem", "-out", certificate)  # fmt: skip
    with open(f"{folder}/conf", "w") as f:
        f.write(
            NGINX.format(
                folder=folder,
                port=number,
                behind=behind,
                tls=tls,
                path=path,
                more=more,
                user="user root;" if os.getuid() == 0 else "",
            )
        )
    with process(["nginx", "-e", f"{folder}/error.log", "-c", f"{folder}/conf"], [number], f"{folder}/log"):
        yield f"{'https' if tls else 'http'}://127.0.0.1:{number}{path}it", {"GIT_SSL_CAINFO": certificate}


@contextlib.contextmanager
def httpd(folder, behind):
    need("apache2")
    number = port()
    with apache(folder, number, APACHE.format(behind=behind)):
        yield f"http://127.0.0.1:{number}/weir/it", {}


@contextlib.contextmanager
def haproxy(folder, behind, mode="http", more="", server=""):
    need("haproxy")
    os.makedirs(folder)
    number = port()
    with open(f"{folder}/conf", "w") as f:
        f.write(HAPROXY.format(port=number, behind=behind, mode=mode, more=more, server=server))
    with process(["haproxy", "-db", "-f", f"{folder}/conf"], [number], f"{folder}/log"):
        yield f"http://127.0.0.1:{number}/it", {}


CLIENTS = {
    "nginx": nginx,
    "nginx, unbuffered, below a folder": lambda *args: nginx(*args, path="/sub/folder/", more=UNBUFFERED),
    "nginx, TLS and HTTP/2": lambda *args: nginx(*args, tls=" ssl http2"),
    "Apache httpd, below a folder": httpd,
    "HAProxy": haproxy,
    "nginx, whose word is taken": lambda *args: nginx(*args, more=FORWARDED),
    "HAProxy, whose word is taken": lambda *args: haproxy(*args, more="option forwardfor"),
    "HAProxy, PROXY protocol": lambda *args: haproxy(*args, mode="tcp", server="send-proxy-v2"),
    "HAProxy, PROXY protocol, version 1": lambda *args: haproxy(*args, mode="tcp", server="send-proxy"),
}
# Lines of [serve] for each of them.
TRUSTED = "trusted_proxies = ['127.0.0.1']"
SERVE = {
    "nginx, whose word is taken": TRUSTED,
    "HAProxy, whose word is taken": TRUSTED,
    "HAProxy, PROXY protocol": f"{TRUSTED}\nproxy_protocol = true",
    "HAProxy, PROXY protocol, version 1": f"{TRUSTED}\nproxy_protocol = true",
}


def table(out, work, wanted):
    upstream = new_upstream(os.path.join(work, "proxied.git"))
    history(upstream)
    pool = Pool(os.path.join(work, "proxied-pool"), upstream)
    out.begin("proxy", *COLUMNS)
    with stock(work, upstream) as stock_urls:
        for number, name in enumerate(wanted):
            place = os.path.join(work, f"proxy-{number}")
            behind = port()
            try:
                with CLIENTS[name](os.path.join(work, f"proxy-{number}-conf"), behind) as (url, env):
                    client = Git("git", os.path.join(work, "proxy-home"))
                    client.more = env

                    @contextlib.contextmanager
                    def fresh():
                        with pool.configured("serve", SERVE.get(name, "")), pool.serve(http=behind):
                            yield url

                    out.row([name], list(cells(client, place, pool, fresh, stock_urls["http"])))
            except (Skipped, AssertionError) as e:
                result = "skipped" if isinstance(e, Skipped) else "failed"
                out.row([name], [f"{result}: {e}", *["-"] * (len(COLUMNS) - 1)])
            shutil.rmtree(place, ignore_errors=True)
