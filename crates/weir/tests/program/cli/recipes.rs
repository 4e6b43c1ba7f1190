//! The commands of the book, run chapter by chapter as a reader would run them, against a small internet: an
//! HTTP proxy leads every host that the book names to one server. The test runs every command, except those
//! that a chapter's list leaves out with a reason.

use std::fmt::Write as _;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use crate::common::{Env, Http};
use weir_testing::{free_port, program};

/// The upstreams, named by host and path.
const UPSTREAMS: &[&str] = &[
    "git.example.org/team/tool",
    "github.com/git/git",
    "github.com/my-org/tool",
    "github.com/torvalds/linux",
    "github.com/you/assets",
    "github.com/you/broken",
    "github.com/you/git",
    "gitlab.example/secret/tool",
    "gitlab.example/team/tool",
    "new.example/team/tool",
];
/// The history of each upstream, for git fast-import.
const HISTORY: &str = "commit refs/heads/main
committer A <a@b> 1700000000 +0000
data 2
c
M 100644 inline README.md
data 8
read me
M 100644 inline Documentation/git.txt
data 4
git
";
/// A replacement of URL schemes: the hosts of the internet have no certificates, so that the test uses HTTP.
const PLAIN: (&str, &str) = ("https://", "http://");

/// A chapter of the book, and what its commands need.
struct Chapter {
    file: &'static str,
    /// Commands that run before the first one, in bash.
    before: &'static str,
    /// Commands that stand for work by hand: the start of the command that they precede, and the commands.
    between: &'static [(&'static str, &'static str)],
    /// Starts of commands that are not run, and why.
    left_out: &'static [(&'static str, &'static str)],
}

const AS_ROOT: &str = "changes the machine";
const MOUNTS_TOO: &str = "needs a system that mounts: tests/program/workspace.rs does so";
const MOUNTS: &str = "needs a system that mounts: tests/program/mount.rs does so";
const CHAPTERS: &[Chapter] = &[
    Chapter {
        file: "install.md",
        before: "upstreams https://github.com/git/git.git 'https://git.example.org/team/tool.git tools/tool'",
        between: &[("weir mirror 'github.com/*/linux'", "weir -q add https://github.com/torvalds/linux.git")],
        left_out: &[("make ", "the test's own build does it"), ("sudo ", AS_ROOT)],
    },
    Chapter {
        file: "ci.md",
        before: "upstreams https://github.com/git/git.git https://gitlab.example/team/tool.git \
            https://gitlab.example/secret/tool.git 'https://git.example.org/team/tool.git team/tool'
            cp /etc/weir/fullchain.pem company-ca.pem",
        between: &[(
            "git clone https://ci:SECRET@",
            "config access.rules 'repositories = [\"gitlab.example/secret/*\"]' 'public = false' \
                'tokens = [\"ci\"]'
            config access.tokens 'name = \"ci\"' \"sha256 = '$(printf %s SECRET | sha256sum | cut -c1-64)'\"
            serve weir serve --http 127.0.0.1:8080",
        )],
        left_out: &[("weir hooks test ci", "needs a server: tests/program/events/hooks.rs has one")],
    },
    Chapter {
        file: "events.md",
        before: "pool https://github.com/git/git.git
            config events.webhook 'forge = \"generic\"' 'secrets = [\"tell-nobody\"]'
            config events.webhook 'forge = \"github\"' 'secrets = [\"tell-nobody\"]'
            config events.table 'name = \"readings\"' 'match = \"host\"' \
                'columns = [\"host text not null\", \"load real from system.load\"]'
            serve weir events serve --listen 127.0.0.1:9419 --udp 127.0.0.1:9419",
        between: &[
            ("curl -H 'Auth", "serve weir serve --http 127.0.0.1:8080"),
            ("weir events ls", "sleep 1"),
            ("printf '{\"host\": \"a1\"", "serve weir events serve --listen 127.0.0.1:9419"),
            ("weir events rejected", "sleep 2"),
        ],
        left_out: &[("weir events sweep", "needs GitHub: tests/program/events/sweep.rs has a false one")],
    },
    Chapter {
        file: "forges.md",
        before: "pool https://github.com/git/git.git
            config forge 'type = \"folder\"' 'url = \"/srv/git\"' 'name = \"local\"'
            cat > repositories.json <<< \
                '{\"id\":1,\"full_name\":\"o/r\",\"clone_url\":\"https://github.com/o/r.git\"}'
            cat > projects.csv <<< \
                '1,\"https://api.github.com/repos/o/a\",7,\"a\",\"\",\"C\",\"2013-01-01 00:00:00\",\\N,0,\\N'
            for hour in {0..23}; do gzip -c < /dev/null > 2015-01-01-$hour.json.gz; done",
        between: &[("weir dissociate github.com/you/git", "weir -q mirror github.com/you/git")],
        left_out: &[("weir import ghtorrent-bson", "needs a dump in BSON: forge's unit tests read one")],
    },
    Chapter {
        file: "serving.md",
        before: "pool https://github.com/git/git.git https://gitlab.example/secret/tool.git",
        between: &[
            ("git clone --mirror http://", "serve weir serve --http 127.0.0.1:8080"),
            (
                "weir config check git://gist",
                "config serve.map 'host = \"gist.example.org\"' \"path = '/.*'\" \
                    'to = \"github.com/git/git\"'",
            ),
        ],
        left_out: &[
            ("sudo ", AS_ROOT),
            ("make deb", "'make deb-try' does"),
            ("podman ", "'make container-try' does"),
        ],
    },
    Chapter {
        file: "api.md",
        before: "pool https://github.com/git/git.git
            config access.tokens 'name = \"boss\"' 'scopes = [\"read\", \"manage\"]' \
                \"sha256 = '$(printf %s TOKEN | sha256sum | cut -c1-64)'\"",
        between: &[],
        left_out: &[],
    },
    Chapter {
        file: "lfs-and-metadata.md",
        before: "pool https://github.com/git/git.git https://github.com/you/assets.git
            serve weir serve --http 127.0.0.1:8080",
        between: &[("git lfs pull", "cd assets")],
        left_out: &[("weir metadata ", "needs a forge's API: tests/program/crawl/metadata.rs has one")],
    },
    Chapter {
        file: "history.md",
        before: "pool; weir -q add --name github.com/git/git /srv/git/git.git; weir -q mirror
            for n in 2 3; do commit $n; weir -q mirror --all; done
            sed -i 's/^#*\\[serve\\]/[serve]\\nolder_states = true/' $WEIR_POOL/weir.toml
            serve weir serve --no-mirror --git 127.0.0.1:9418",
        between: &[],
        left_out: &[("git clone http:", "there is no state of that day")],
    },
    Chapter {
        file: "mounting.md",
        before: "pool https://github.com/git/git.git",
        between: &[],
        left_out: &[("weir mount ", MOUNTS), ("ls ", MOUNTS), ("diff ", MOUNTS), ("umount ", MOUNTS)],
    },
    Chapter {
        file: "workspaces.md",
        before: "pool https://github.com/git/git.git",
        between: &[],
        left_out: &[("weir ", MOUNTS_TOO), ("cd ", MOUNTS_TOO), ("git status ", MOUNTS_TOO)],
    },
    Chapter { file: "workspace-uses.md", before: "", between: &[], left_out: &[("weir ws ", MOUNTS_TOO)] },
    Chapter {
        file: "mining.md",
        before: "pool https://github.com/git/git.git
            mkdir -p ~/src; git clone -q /srv/git/git.git ~/src/project",
        between: &[],
        left_out: &[
            ("duckdb ", "needs DuckDB"),
            ("python3 ", "needs Polars"),
            ("weir mine --to postgres", "needs a server"),
        ],
    },
    Chapter {
        file: "queries.md",
        before: "pool https://github.com/git/git.git
            echo 'select count(*) as commits from revision' > years.sql",
        between: &[],
        left_out: &[],
    },
    Chapter {
        file: "operating.md",
        before: "pool https://github.com/git/git.git https://github.com/you/broken.git
            weir -q add --name team/tool https://git.example.org/team/tool.git; weir -q mirror
            mkdir -p /backup/weir; type rsync > /dev/null 2>&1 || rsync() { cp \"$@\"; }",
        between: &[("weir init", "stop; rm $WEIR_POOL/catalog.db*")],
        left_out: &[
            ("sudo ", AS_ROOT),
            ("weir migrate ", "needs PostgreSQL: fleet.rs moves a catalog there and back"),
            ("mv /var/lib/weir/catalog.db", "belongs to the way back"),
        ],
    },
    Chapter {
        file: "coming-from.md",
        before: "pool https://github.com/my-org/tool.git; mkdir -p /var/www
            git -C /srv/git/git.git config remote.origin.url https://github.com/git/git.git
            config forge 'type = \"folder\"' 'url = \"/srv/git\"' 'name = \"local\"'
            for place in /srv/crawld/clones /var/lib/grokmirror /var/lib/gitea/data/gitea-repositories \
                ~/ghorg/my-org; do
                git clone -q --mirror https://github.com/torvalds/linux.git $place/linux.git
            done",
        between: &[],
        left_out: &[(
            "weir import crawld ",
            "needs a crawld's database: tests/program/crawl/import.rs has one",
        )],
    },
];

fn book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src")
}

/// Returns the code blocks of `chapter` in `language`.
fn blocks(chapter: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(book().join(chapter)).unwrap();
    let parts = text.split("\n```").skip(1).step_by(2);
    parts.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).map(str::to_owned).collect()
}

/// A command of a chapter, and the lines of its output that the chapter shows.
#[derive(Debug)]
struct Recipe {
    command: String,
    shown: Vec<String>,
}

/// Returns the commands of `chapter`, in order.
fn recipes(chapter: &str) -> Vec<Recipe> {
    let mut recipes: Vec<Recipe> = Vec::new();
    for block in blocks(chapter, "console") {
        for line in block.lines() {
            match (line.strip_prefix("$ "), recipes.last_mut()) {
                (Some(command), _) => {
                    recipes.push(Recipe { command: command.to_owned(), shown: Vec::new() });
                }
                // The command goes on.
                (None, Some(last))
                    if last.command.ends_with('\\') || last.command.matches('"').count() % 2 == 1 =>
                {
                    last.command.push_str(&format!("\n{line}"));
                }
                (None, Some(last)) => last.shown.push(line.to_owned()),
                (None, None) => {}
            }
        }
    }
    recipes
}

/// Starts a proxy that leads every host to the server at `port`. Returns the port of the proxy.
fn proxy_to(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
                let _ = std::io::copy(&mut &client, &mut &server);
            });
        }
    });
    at
}

/// The hosts that the book names, and a reader's machine.
struct World {
    internet: Env,
    _server: Http,
    proxy: u16,
    reader: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let internet = Env::new();
        for name in UPSTREAMS {
            let path = internet.init_bare(&format!("{}.git", name.replace('/', "-")));
            internet.git_with(&path, &["fast-import", "--quiet"], HISTORY.as_bytes());
            internet.git(&path, &["tag", "v2.40.0", "main"]);
            internet.weir(&["add", "--name", name, path.to_str().unwrap()]);
        }
        internet.weir(&["mirror"]);
        let config = internet.pool().join("weir.toml");
        let map = "\n[[serve.map]]\npath = '/(.*?)(\\.git)?'\nto = '{host}/{1}'\n";
        fs::write(&config, fs::read_to_string(&config).unwrap() + map).unwrap();
        let server = Http::serve(&internet, &[]);
        let proxy = proxy_to(server.0.port);
        let world = World { internet, _server: server, proxy, reader: weir_testing::folder() };
        world.furnish();
        world
    }

    /// Makes the files that the book names on the reader's machine.
    fn furnish(&self) {
        let (certificate, key) = self.internet.certificate();
        let of_name = |name: &str| self.internet.path(&format!("{}.git", name.replace('/', "-")));
        for folder in ["work", "home", "etc/weir", "etc/ssl/certs", "srv/git", "var/lib", "backup"] {
            fs::create_dir_all(self.reader.path().join(folder)).unwrap();
        }
        for (from, to) in [
            (&certificate, "etc/weir/fullchain.pem"),
            (&certificate, "etc/weir/ca.pem"),
            (&certificate, "etc/ssl/certs/ca-certificates.crt"),
            (&certificate, "etc/ssl/company-ca.pem"),
            (&key, "etc/weir/privkey.pem"),
        ] {
            fs::copy(from, self.reader.path().join(to)).unwrap();
        }
        for (file, text) in [
            ("github-tokens", "t\n"),
            ("gitea-token", "t\n"),
            ("github-webhook", "s\n"),
            ("ci-webhook", "s\n"),
            ("netrc", "machine h login l\n"),
        ] {
            fs::write(self.reader.path().join("etc/weir").join(file), text).unwrap();
        }
        let bin = self.reader.path().join("usr/local/bin");
        fs::create_dir_all(&bin).unwrap();
        for program in ["on-update", "tell-me", "may-have", "parse-line"] {
            fs::copy("/bin/true", bin.join(program)).unwrap();
        }
        let git = self.reader.path().join("srv/git/git.git");
        let copied = weir_testing::command("cp")
            .arg("-a")
            .arg(of_name("github.com/git/git"))
            .arg(git)
            .status()
            .unwrap();
        assert!(copied.success());
    }

    /// Returns `text` with the paths, addresses and names of this machine.
    fn here(&self, text: &str, ports: &[(&str, u16)]) -> String {
        let root = self.reader.path().display().to_string();
        // Not the port of git daemon, which other tests may use.
        let mut text = text.replace("weir serve --http", "weir serve --git 127.0.0.1:9418 --http");
        text = text.replace("weir serve --metrics", "weir serve --git 127.0.0.1:9418 --metrics");
        let mut text =
            text.replace("--listen=127.0.0.1", &format!("--listen=127.0.0.1 --port={}", ports[0].1));
        text = text.replace(PLAIN.0, PLAIN.1).replace("git://localhost/", "git://127.0.0.1:9418/");
        for name in ["weir.example:8080", "weir.example", "localhost:8080"] {
            text = text.replace(name, "127.0.0.1:8080");
        }
        for (port, here) in ports {
            text = text.replace(&format!("0.0.0.0:{port}"), &format!("127.0.0.1:{here}"));
            text = text.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{here}"));
            text = text.replace(&format!("127.0.0.1/{port}"), &format!("127.0.0.1/{here}"));
        }
        for path in [
            "/var/lib",
            "/var/www",
            "/var/log",
            "/usr/local/bin",
            "/etc/weir",
            "/etc/ssl",
            "/srv/",
            "/backup",
        ] {
            text = text.replace(path, &format!("{root}{path}"));
        }
        text.replace("/home/you/", &format!("{root}/home/"))
            .replace("http://proxy.example:3128", &format!("http://127.0.0.1:{}", self.proxy))
            .replace("--system", "--global")
            .replace("de3b57b", "$(git -C $ROOT/srv/git/git.git rev-parse main~)")
            .replace("weir mirror NAME", "weir mirror github.com/git/git")
    }

    /// Runs the commands of a chapter in bash.
    fn run(&self, chapter: &Chapter) {
        let ports = ["9418", "9419", "8080", "9090", "443"].map(|port| (port, free_port()));
        let mut script = format!("ROOT={}\n{PRELUDE}", self.reader.path().display());
        let hidden =
            |script: &mut String, text: &str| writeln!(script, "{}", self.here(text, &ports)).unwrap();
        hidden(&mut script, chapter.before);
        let recipes = recipes(chapter.file);
        assert!(!recipes.is_empty(), "{}", chapter.file);
        if recipes.iter().any(|recipe| recipe.command.contains("curl ")) && program("curl").is_none() {
            return;
        }
        for (start, why) in chapter.left_out.iter().chain(chapter.between) {
            let is_there = recipes.iter().any(|recipe| recipe.command.starts_with(start));
            assert!(is_there, "{}: no '{start}' ({why})", chapter.file);
        }
        for (n, Recipe { command, shown }) in recipes.iter().enumerate() {
            if let Some((_, text)) = chapter.between.iter().find(|(start, _)| command.starts_with(start)) {
                hidden(&mut script, text);
            }
            if !chapter.left_out.iter().any(|(start, _)| command.starts_with(start)) {
                write!(script, "run <<'COMMAND-{n}'\n{}\nCOMMAND-{n}\n", self.here(command, &ports)).unwrap();
                for line in shown {
                    let ids = line.split(|c: char| !c.is_ascii_hexdigit()).filter(|word| word.len() == 40);
                    let line = ids.fold(line.clone(), |line, id| line.replace(id, &"0".repeat(40)));
                    writeln!(script, "shown <<'LINE'\n{}\nLINE", self.here(&line, &ports)).unwrap();
                }
            }
        }
        let mut bash = weir_testing::command("bash");
        let path = format!("{}:{}", self.bin().display(), std::env::var("PATH").unwrap());
        bash.args(["-c", &script]).current_dir(self.reader.path().join("work")).env("PATH", path);
        bash.env("HOME", self.reader.path().join("home")).env("no_proxy", "127.0.0.1");
        bash.env("http_proxy", format!("http://127.0.0.1:{}", self.proxy)).env_remove("WEIR_POOL");
        let output = bash.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}:\n{said}", chapter.file);
    }

    /// Returns a folder with nothing but the program.
    fn bin(&self) -> PathBuf {
        let bin = self.reader.path().join("bin");
        fs::create_dir_all(&bin).unwrap();
        let _ = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weir"), bin.join("weir"));
        bin
    }
}

/// Functions of the scripts. A command is printed before it runs. Servers run in the background, one at a
/// time. Each clone gets a folder of its own.
const PRELUDE: &str = r#"
set -u
SERVER=; CLONES=0
trap '[ -z "$SERVER" ] || kill $SERVER' EXIT
fail() { echo "failed: $1"; cat $ROOT/serve.log 2>/dev/null; exit 1; }
stop() { [ -z "$SERVER" ] || { kill $SERVER; wait $SERVER; SERVER=; }; }
serve() {
    stop
    "$@" > $ROOT/serve.log 2>&1 & SERVER=$!
    for port in $(printf '%s\n' "$@" | sed -n 's/^\(--port=\|127.0.0.1:\)//p'); do
        for n in $(seq 600); do
            (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null && continue 2
            kill -0 $SERVER 2>/dev/null || fail "$*"
            sleep 0.05
        done
        fail "nobody listens on $port: $*"
    done
}
pool() {
    export WEIR_POOL=$ROOT/var/lib/weir
    weir -q init && { [ $# = 0 ] || weir -q add "$@" && weir -q mirror; }
}
upstreams() { printf '%s\n' "$@" > upstreams.txt; }
config() { { echo "[[$1]]"; shift; printf '%s\n' "$@"; } >> $WEIR_POOL/weir.toml; }
commit() {
    repo=$ROOT/srv/git/git.git
    id=$(GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b \
        git -C $repo commit-tree -m "$1" -p main 'main^{tree}') && git -C $repo update-ref refs/heads/main $id
}
run() {
    command=$(cat); echo "\$ $command"
    case $command in
        'weir serve '*|'weir daemon '*) eval "serve $command" ;;
        'git clone '*|'git -c '*clone*|'weir clone '*)
            CLONES=$((CLONES + 1)); mkdir clone-$CLONES; cd clone-$CLONES
            eval "$command" || fail "$command"
            [ "${command%assets}" != "$command" ] || cd .. ;;
        *)  { eval "$command" || fail "$command"; } > $ROOT/printed 2>&1
            cat $ROOT/printed; alike < $ROOT/printed >> $ROOT/all-printed ;;
    esac
}
alike() { sed -E 's/\b[0-9a-f]{40}\b/ID/g; s/[0-9]+(\.[0-9]+)?/N/g; s/ +/ /g'; }
shown() {
    line=$(alike)
    # A chapter may run a command that an earlier one has run: what is new is said once.
    grep -qxF -e "$line" $ROOT/all-printed || fail "the book shows a line that is not printed: $line"
}
"#;

/// A test for each chapter.
macro_rules! chapters {
    ($($name:ident: $file:literal,)*) => {
        $(#[test]
        fn $name() {
            let chapter = CHAPTERS.iter().find(|chapter| chapter.file == $file).unwrap();
            World::new().run(chapter);
        })*

        #[test]
        fn every_chapter_with_commands_is_run() {
            for file in fs::read_dir(book()).unwrap() {
                let file = file.unwrap().file_name().into_string().unwrap();
                let is_run = [$($file),*].contains(&file.as_str());
                assert!(is_run || !file.ends_with(".md") || recipes(&file).is_empty(), "{file}");
            }
        }
    };
}

chapters! {
    commands_of_installing: "install.md",
    commands_of_ci: "ci.md",
    commands_of_events: "events.md",
    commands_of_forges: "forges.md",
    commands_of_serving: "serving.md",
    commands_of_asking: "api.md",
    commands_of_lfs_and_metadata: "lfs-and-metadata.md",
    commands_of_history: "history.md",
    commands_of_mining: "mining.md",
    commands_of_queries: "queries.md",
    commands_of_mounting: "mounting.md",
    commands_of_workspaces: "workspaces.md",
    commands_of_uses_of_workspaces: "workspace-uses.md",
    commands_of_operating: "operating.md",
    commands_of_coming_from_other_tools: "coming-from.md",
}

#[test]
fn settings_in_the_book_are_settings() {
    if program("ssh").is_none() {
        return;
    }
    let world = World::new();
    let pool = world.reader.path().join("home/weir");
    fs::create_dir_all(world.reader.path().join("var/log/weir")).unwrap();
    let mut checked = 0;
    for chapter in CHAPTERS {
        for block in blocks(chapter.file, "toml") {
            checked += 1;
            let forge = "[[forge]]\ntype = \"github\"\nurl = \"https://github.com\"\n";
            let whole = if block.contains('[') && !block.starts_with("search") { "" } else { forge };
            let config = world.here(&format!("{whole}{block}"), &[("9418", 9418)]);
            let config = config.replace("sha256 = \"...\"", &format!("sha256 = \"{}\"", "0".repeat(64)));
            fs::create_dir_all(&pool).unwrap();
            fs::write(pool.join("weir.toml"), &config).unwrap();
            let mut check = weir_testing::command(env!("CARGO_BIN_EXE_weir"));
            let output = check.arg("--pool").arg(&pool).args(["config", "check"]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}:\n{block}\n{said}", chapter.file);
        }
    }
    assert!(checked > 20, "{checked} blocks of settings");
}
