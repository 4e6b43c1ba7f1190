"""git http-backend under Apache and nginx, also over TLS by a private authority, and files (dumb HTTP)."""

import os
import shutil
import sys
import urllib.parse

from common import Refused, Upstream, git, need, port, run

# One whose password wants quoting in a URL, and one for netrc.
USERS = {"tester": "a p@ss/word", "netrc": "simple"}


def backend():
    return os.path.join(run("git", "--exec-path"), "git-http-backend")


def prepare(place):
    """What both servers need: the repository, a configuration for git there, and a password."""
    place.create()
    made = (
        f"{user}:{run(need('openssl'), 'passwd', '-apr1', password)}\n" for user, password in USERS.items()
    )
    place.write("passwords", "".join(made))
    # The server may run as somebody else than who made the repository.
    return place.write("gitconfig", "[safe]\n\tdirectory = *\n")


def rows(server, place, number):
    """The same paths at both servers."""
    url = f"http://127.0.0.1:{number}"
    for what, path, more in (
        ("v2", "git", {"protocol": 2}),
        ("v0", "v0", {"protocol": 0}),
        ("gzip", "gzip", {}),
        ("301", "moved", {}),
        ("307", "temporary", {}),
        ("301 to another host's name", "elsewhere", {}),
    ):
        yield Upstream(f"{server}, {what}", f"{url}/{path}/it.git", f"{url}/{path}/missing.git", **more)
    user, password = "tester", urllib.parse.quote(USERS["tester"], safe="")
    at = f"http://{user}:{password}@127.0.0.1:{number}/auth"
    wrong = f"http://{user}:wrong@127.0.0.1:{number}/auth/it.git"
    refused = [
        Refused("no password", f"{url}/auth/it.git", "forbidden"),
        Refused("wrong password", wrong, "forbidden"),
    ]
    yield Upstream(f"{server}, Basic, URL", f"{at}/it.git", f"{at}/missing.git", refused=refused)
    home = os.path.join(place.folder, "home")
    os.makedirs(home)
    place.write("home/.netrc", f"machine 127.0.0.1 login netrc password {USERS['netrc']}\n", 0o600)
    yield Upstream(
        f"{server}, Basic, netrc", f"{url}/auth/it.git", f"{url}/auth/missing.git", env={"HOME": home}
    )


def apache(place):
    program = need("apache2")
    modules = "/usr/lib/apache2/modules"
    config, number = prepare(place), port()
    names = (
        "mpm_prefork authn_core authn_file authz_core authz_user auth_basic "
        "alias env cgi headers filter deflate"
    )
    lines = [f"LoadModule {name}_module {modules}/mod_{name}.so" for name in names.split()]
    lines += [
        f"ServerRoot {place.folder}",
        f"PidFile {place.folder}/pid",
        "ServerName 127.0.0.1",
        f"Listen 127.0.0.1:{number}",
    ]
    lines += [f"ErrorLog {place.folder}/errors", "StartServers 1", "MaxRequestWorkers 8"]
    if os.geteuid() == 0:
        lines += ["User www-data", "Group www-data"]
    lines += [
        f"SetEnv GIT_PROJECT_ROOT {place.repositories}",
        "SetEnv GIT_HTTP_EXPORT_ALL 1",
        f"SetEnv GIT_CONFIG_GLOBAL {config}",
    ]
    lines += [f"ScriptAlias /{path}/ {backend()}/" for path in ("git", "v0", "gzip", "auth")]
    lines += [
        f"<Directory {os.path.dirname(backend())}>",
        "Require all granted",
        "Options +ExecCGI",
        "</Directory>",
    ]
    lines += ["<Location /v0/>", "RequestHeader unset Git-Protocol", "</Location>"]
    lines += ["<Location /gzip/>", "SetOutputFilter DEFLATE", "</Location>"]
    lines += [
        "<Location /auth/>",
        "AuthType Basic",
        "AuthName git",
        f"AuthUserFile {place.folder}/passwords",
        "Require valid-user",
        "</Location>",
    ]
    for status, path, host in (
        (301, "moved", "127.0.0.1"),
        (307, "temporary", "127.0.0.1"),
        (301, "elsewhere", "localhost"),
    ):
        lines += [f"Redirect {status} /{path}/ http://{host}:{number}/git/"]
    place.start(
        program, "-DFOREGROUND", "-f", place.write("apache.conf", "\n".join(lines) + "\n"), ready=number
    )
    return list(rows("Apache", place, number))


def start_nginx(place, tls=""):
    """nginx in front of git http-backend, by fcgiwrap; the port."""
    program, config, number = need("nginx"), prepare(place), port()
    place.start(need("fcgiwrap"), "-c", "4", "-s", f"unix:{place.folder}/fcgi", ready=f"{place.folder}/fcgi")
    user = "user root;" if os.geteuid() == 0 else ""
    temporary = "".join(
        f"{name}_temp_path {place.folder}/{name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )

    def location(path, more=""):
        return f"""location ~ ^/{path}(/.*)$ {{
            fastcgi_pass unix:{place.folder}/fcgi;
            fastcgi_param SCRIPT_FILENAME {backend()};
            fastcgi_param GIT_PROJECT_ROOT {place.repositories};
            fastcgi_param GIT_HTTP_EXPORT_ALL 1;
            fastcgi_param GIT_CONFIG_GLOBAL {config};
            fastcgi_param PATH_INFO $1;
            fastcgi_param QUERY_STRING $query_string;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param CONTENT_TYPE $content_type;
            fastcgi_param CONTENT_LENGTH $content_length;
            fastcgi_param SERVER_PROTOCOL $server_protocol;
            fastcgi_param REMOTE_ADDR $remote_addr;
            {more}
        }}
        """

    locations = [
        location("git"),
        location("v0", 'fastcgi_param HTTP_GIT_PROTOCOL "";'),
        location("gzip", "gzip on; gzip_types *; gzip_min_length 1;"),
    ]
    locations += [location("auth", f"auth_basic git; auth_basic_user_file {place.folder}/passwords;")]
    for status, path, host in (
        (301, "moved", "127.0.0.1"),
        (307, "temporary", "127.0.0.1"),
        (301, "elsewhere", "localhost"),
    ):
        locations += [
            f"location ~ ^/{path}(/.*)$ {{ return {status} http://{host}:{number}/git$1$is_args$args; }}\n"
        ]
    text = f"""daemon off; pid {place.folder}/pid; worker_processes 1; {user} error_log {place.folder}/errors;
    events {{ worker_connections 64; }}
    http {{ access_log off; client_max_body_size 0; {temporary}
    server {{ listen 127.0.0.1:{number}{' ssl' if tls else ''}; {tls} {''.join(locations)} }} }}
    """
    place.start(program, "-c", place.write("nginx.conf", text), ready=number)
    return number


def nginx(place):
    return list(rows("nginx", place, start_nginx(place)))


def tls(place):
    openssl = need("openssl")
    path = place.folder
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    run(
        openssl,
        *made.split(),
        "-subj",
        "/CN=an authority of a test",
        "-keyout",
        f"{path}/ca.key",
        "-out",
        f"{path}/ca.pem",
    )
    run(
        openssl,
        *made.replace(" -x509", "").replace(" -days 2", "").split(),
        "-subj",
        "/CN=localhost",
        "-keyout",
        f"{path}/key.pem",
        "-out",
        f"{path}/request",
    )
    extensions = place.write(
        "extensions", "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n"
    )
    signed = "x509 -req -days 2 -CAcreateserial"
    run(
        openssl,
        *signed.split(),
        "-in",
        f"{path}/request",
        "-CA",
        f"{path}/ca.pem",
        "-CAkey",
        f"{path}/ca.key",
        "-extfile",
        extensions,
        "-out",
        f"{path}/cert.pem",
    )
    url = (
        "https://localhost:"
        f"{start_nginx(place, f'ssl_certificate {path}/cert.pem; ssl_certificate_key {path}/key.pem;')}/git"
    )
    ca = f"{path}/ca.pem"
    for_git = {"GIT_SSL_CAINFO": ca}

    def row(what, **more):
        return Upstream(
            f"private authority, {what}", f"{url}/it.git", f"{url}/missing.git", git_env=for_git, **more
        )

    return [
        row("SSL_CERT_FILE", env={"SSL_CERT_FILE": ca}),
        row("GIT_SSL_CAINFO", env=for_git),
        row(
            "ca_file",
            toml={"transport": f'ca_file = "{ca}"'},
            refused=[Refused("not told of it", f"{url}/it.git", None, with_settings=False)],
        ),
    ]


def dumb(place, label="dumb HTTP", alternates=None):
    """Plain files, served by Python: packed and loose objects.

    With `alternates`, another repository holds the packed objects."""
    run("git", "init", "-q", "--bare", "-b", "main", place.repository)
    objects = os.path.join(place.repository, "objects")
    packed = place.repository
    if alternates:
        packed = os.path.join(place.repositories, "base.git")
        run("git", "init", "-q", "--bare", "-b", "main", packed)
        # Where there are http-alternates, the other file is the server's own business.
        at = {"alternates": "../../base.git/objects", "http-alternates": f"{packed}/objects"}[alternates]
        place.write("repositories/it.git/objects/info/alternates", f"{at}\n")
        if alternates == "http-alternates":
            place.write("repositories/it.git/objects/info/http-alternates", "/base.git/objects\n")
    git(packed, "fetch", "-q", "../first.bundle", "+refs/heads/main:refs/heads/main")
    # The bundle's pack has all in it.
    git(packed, "repack", "-a", "-d", "-q")
    git(packed, "update-server-info")
    kept = set(os.listdir(os.path.join(objects, "pack")))

    def changed():
        """Makes loose objects of what has come, and writes the lists of refs and packs."""
        for name in set(os.listdir(os.path.join(objects, "pack"))) - kept:
            moved = shutil.move(os.path.join(objects, "pack", name), place.folder)
            if name.endswith(".pack"):
                with open(moved, "rb") as pack:
                    run("git", "-C", place.repository, "unpack-objects", "-q", stdin=pack)
        place.git("update-server-info")
        assert any(len(name) == 2 for name in os.listdir(objects)), "no loose objects"

    place.changed = changed
    place.fill(0)
    number = port()
    place.start(
        sys.executable,
        "-m",
        "http.server",
        "--bind",
        "127.0.0.1",
        "--directory",
        place.repositories,
        str(number),
        ready=number,
    )
    url = f"http://127.0.0.1:{number}"
    # git follows alternates only where it follows redirections.
    options = ("-c", "http.followRedirects=true") if alternates else ()
    return [Upstream(label, f"{url}/it.git", f"{url}/missing.git", git_options=options)]


def dumb_alternates(place):
    return dumb(place, "dumb HTTP, alternates", "alternates")


def dumb_http_alternates(place):
    return dumb(place, "dumb HTTP, http-alternates", "http-alternates")
