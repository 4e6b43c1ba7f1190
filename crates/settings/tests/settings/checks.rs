//! Which settings are refused, and what the others mean.

use std::time::Duration;

use weir_catalog::Interval;
use weir_settings::{
    Error, IntervalSetting, Size, Span, interval_argument, load, size_argument, span_argument,
};

use crate::{ENVIRONMENT, of, try_load, wrong_key};

const FORGE: &str = "[[forge]]\ntype = 'github'\nurl = 'https://github.com'\n";
const WEBHOOK: &str = "[[events.webhook]]\nforge = 'github'\nsecrets = ['long enough for it']\n";
const HOOK: &str = "[[hooks.webhook]]\nname = 'h'\nurl = 'https://h/x'\n";
const COMMAND: &str = "[[hooks.command]]\nname = 'c'\ncommand = ['true']\n";
const TABLE: &str = "[[events.table]]\nname = 't'\ncolumns = ['a text']\n";
const WORKER: &str = "[[events.worker]]\nname = 'w'\ncommand = ['true']\n";
const STREAM: &str = "[[events.stream]]\nforge = 'gerrit'\nname = 's'\ncommand = ['x']\nurl = 'https://h'\n";

#[test]
fn settings_that_must_be_at_least_one_are() {
    for key in [
        "mirror.jobs",
        "mirror.jobs_per_host",
        "mirror.threads",
        "mirror.interval",
        "mirror.interval_daily",
        "mirror.interval_max",
        "mirror.retry",
        "transport.connect_timeout",
        "transport.idle_timeout",
        "transport.first_byte_timeout",
        "transport.pack_start_timeout",
        "events.keep",
        "events.connections_max",
        "events.connections_per_address_max",
        "hooks.workers",
        "hooks.timeout",
        "archive.packs_max",
        "serve.init_timeout",
        "serve.idle_timeout",
        "serve.connections_max",
        "serve.connections_per_address_max",
        "serve.computed_max",
        "serve.computed_per_address_max",
        "serve.computed_per_repository_max",
        "access.hook_timeout",
    ] {
        let (table, name) = key.split_once('.').unwrap();
        let with = |n: u32| format!("[{table}]\n{name} = {n}\n");
        assert_eq!(wrong_key(&with(0)), (2, key.to_owned()));
        let least = if name == "interval_max" { 600 } else { 1 };
        of(&with(least));
    }
}

#[test]
fn settings_that_do_not_fit_are_named() {
    for (text, line, key) in [
        ("[mirror]\ninterval_min = 61\ninterval_max = 60", 2, "mirror.interval_min"),
        ("[transport]\nprotocol_version_max = 3", 2, "transport.protocol_version_max"),
        ("[scratch]\nfolder = '/nowhere'", 2, "scratch.folder"),
        ("[traces]\nsample_ratio = 1.5", 2, "traces.sample_ratio"),
        ("[serve]\nmetrics = ['x']", 2, "serve.metrics"),
        ("[serve]\ngit = ['x']", 2, "serve.git"),
        ("[serve]\nhttp = ['x']", 2, "serve.http"),
        ("[serve]\nhttps = ['x']", 2, "serve.https"),
        ("[serve]\nhttps = ['[::]:443']", 2, "serve.https"),
        ("[serve]\ntls_key = 'k'\nhttps = ['[::]:443']", 3, "serve.https"),
        ("[serve]\ntls_certificate = 'c'\nhttps = ['[::]:443']", 3, "serve.https"),
        ("[serve]\ntrusted_proxies = ['x y']", 2, "serve.trusted_proxies"),
        ("[serve]\nproxy_protocol = true", 2, "serve.proxy_protocol"),
        ("[events]\nlisten = ['x']", 2, "events.listen"),
        ("[events]\nudp = ['x']", 2, "events.udp"),
        ("[events]\nudp = ['unix:/x']", 2, "events.udp"),
        ("[events]\nadd = ['https://h/a']", 2, "events.add"),
        ("[events]\nadd = ['h/a.git']", 2, "events.add"),
        ("[events]\nspool_bytes_max = 16777215", 2, "events.spool_bytes_max"),
        ("[events]\ntokens = ['none']", 1, "events"),
        ("[events]\nusers = ['no such user']", 1, "events"),
        ("[access]\nrules = [{ repositories = ['a'], tokens = ['none'] }]", 1, "access"),
        ("[access]\nrules = [{ repositories = ['a'], addresses = ['x'] }]", 1, "access"),
        ("[[access.tokens]]\nname = 'a'\nsha256 = 'ab'", 0, "access"),
        ("[[serve.map]]\npath = '('\nto = 'a'", 1, "serve.map"),
        ("[[serve.fetch_on_demand]]\nrepositories = []", 1, "serve.fetch_on_demand"),
        ("[[mirror.rules]]\nrepositories = []\nlfs = true", 1, "mirror.rules"),
        ("[[mirror.rules]]\nrepositories = ['a']", 1, "mirror.rules"),
    ] {
        let (found_line, found) = wrong_key(text);
        assert_eq!((found_line, &*found), (line, key), "{text}");
    }
    let accepted = "[mirror]\ninterval_min = 60\ninterval_max = 60\n[transport]\nprotocol_version_max = 2\n\
        [scratch]\nfolder = '/'\n[serve]\ntrusted_proxies = ['10.0.0.0/8']\nproxy_protocol = true\n\
        tls_key = 'k'\ntls_certificate = 'c'\nhttps = ['[::]:443']\nhttp = ['unix:/x']\n\
        [events]\nadd = ['h/a']\nspool_bytes_max = '16 MiB'\nudp = ['127.0.0.1:9']\nusers = ['root', '77']\n";
    let config = of(accepted);
    assert_eq!(config.events.gate(&config.access).unwrap().users, Some(vec![0, 77]));
    assert!(try_load("[transport]\nca_file = '/nowhere'\n").is_err());
    assert!(matches!(load("/".as_ref(), ENVIRONMENT), Err(Error::File(_))));
    assert_eq!(load("/nowhere".as_ref(), ENVIRONMENT).unwrap().mirror.jobs, 8);
}

/// Returns a table with further lines.
fn with(table: &str, more: &str) -> String {
    format!("{table}{more}\n")
}

fn replaced(table: &str, from: &str, to: &str) -> String {
    assert!(table.contains(from), "{table} {from}");
    table.replace(from, to)
}

fn wrong_forges() -> Vec<String> {
    vec![
        with(FORGE, "include = ['a//b']"),
        with(FORGE, "exclude = ['']"),
        with(FORGE, "owners = ['a']\nsearch = ['b']"),
        with(FORGE, "search = ['created:2020']"),
        with(FORGE, "app = '1'"),
        with(FORGE, "app_key_file = '/x'"),
        with(FORGE, "name = 'a//b'"),
        with(FORGE, "active_since = 'x'"),
        with(FORGE, "active_since = '2020-1-01'"),
        with(FORGE, "active_since = '2020-01-0x'"),
        with(FORGE, "active_since = '2020-01'"),
        replaced(FORGE, "https://github.com", "https://u:p@github.com"),
        replaced(FORGE, "https://github.com", "github.com"),
        replaced(FORGE, "https:", "ssh:"),
        with(&replaced(FORGE, "'github'", "'gitlab'"), "search = ['b']"),
        with(&replaced(FORGE, "'github'", "'gitlab'"), "accounts = true"),
        with(&replaced(FORGE, "'github'", "'gitlab'"), "app = '1'\napp_key_file = '/x'"),
        with(&replaced(FORGE, "'github'", "'cgit'"), "wikis = true"),
        with(&replaced(FORGE, "'github'", "'cgit'"), "metadata = ['issues']"),
        replaced(FORGE, "'github'", "'folder'"),
    ]
}

fn wrong_hooks() -> Vec<String> {
    vec![
        with(WEBHOOK, "name = ''"),
        with(WEBHOOK, "name = 'a/b'"),
        with(WEBHOOK, "unsigned = true"),
        with(WEBHOOK, "url = 'ssh://h'"),
        with(WEBHOOK, "sweep = ['x']"),
        with(WEBHOOK, "sweep = ['repos/a/b']"),
        with(WEBHOOK, "sweep_interval = 0"),
        with(WEBHOOK, "sweep = ['repos/a/../b']\nsweep_forge = 'github.com'"),
        with(WEBHOOK, "sweep = ['repos/']\nsweep_forge = 'github.com'"),
        with(WEBHOOK, "sweep = ['repos/a?b']\nsweep_forge = 'github.com'"),
        with(WEBHOOK, "sweep = ['repos/a b']\nsweep_forge = 'github.com'"),
        with(WEBHOOK, "sweep = ['repos/a/b']\nsweep_forge = 'none'"),
        replaced(WEBHOOK, "long enough for it", " "),
        replaced(WEBHOOK, "['long enough for it']", "[]"),
        with(&replaced(WEBHOOK, "github", "gitlab"), "sweep = ['app']\nsweep_forge = 'x'"),
        with(&replaced(WEBHOOK, "github", "gogs"), "sweep = ['repos/a/b']\nsweep_forge = 'x'"),
        replaced(HOOK, "https", "ssh"),
        replaced(HOOK, "https://h/x", "https://"),
        replaced(HOOK, "'h'", "''"),
        replaced(HOOK, "'h'", "'a b'"),
        with(HOOK, "count = 0"),
        with(HOOK, "count = 65"),
        with(HOOK, "timeout = 0"),
        with(HOOK, "events = []"),
        with(HOOK, "events = ['x']"),
        with(HOOK, "secrets = [' ']"),
        with(HOOK, "secrets = ['whsec_!']"),
        replaced(COMMAND, "['true']", "[]"),
        replaced(COMMAND, "'true'", "''"),
        with(COMMAND, "count = 65"),
        replaced(COMMAND, "'c'", "'a/b'"),
        with(COMMAND, "events = ['x']"),
    ]
}

fn wrong_collectors() -> Vec<String> {
    vec![
        replaced(TABLE, "a text", "a"),
        replaced(TABLE, "'a text'", "'a text', 'a integer'"),
        with(TABLE, "match = '('"),
        with(TABLE, "pattern = 'x'"),
        with(TABLE, "separator = ','"),
        with(TABLE, "format = 'pattern'"),
        with(TABLE, "format = 'pattern'\npattern = '('"),
        with(TABLE, "format = 'pattern'\npattern = '(?<a>x)'\nseparator = ','"),
        with(TABLE, "format = 'separated'\nseparator = ''"),
        with(TABLE, "database = 'mysql://h'"),
        with(TABLE, "format = 'separated'\npattern = 'x'"),
        with(TABLE, "database = ' '"),
        with(TABLE, "database = 'x/catalog.db'"),
        with(TABLE, "database = 'postgres://h/db'"),
        replaced(WORKER, "['true']", "[]"),
        replaced(WORKER, "'true'", "''"),
        with(WORKER, "count = 0"),
        with(WORKER, "timeout = 0"),
        with(WORKER, "match = '('"),
        replaced(WORKER, "'w'", "''"),
        replaced(STREAM, "'s'", "' '"),
        replaced(STREAM, "['x']", "[]"),
        replaced(STREAM, "'x'", "''"),
        replaced(STREAM, "https://h", "/x"),
        format!("{}{}", replaced(HOOK, "'h'", "'c'"), COMMAND),
        format!("{}{}", replaced(WORKER, "'w'", "'t'"), TABLE),
    ]
}

#[test]
fn settings_of_tables_are_checked_each() {
    for (key, table, more) in [
        ("forge", FORGE, ""),
        ("events.webhook", WEBHOOK, ""),
        ("hooks.webhook", HOOK, ""),
        ("hooks.command", COMMAND, ""),
        ("events.table", TABLE, ""),
        ("events.worker", WORKER, ""),
        ("events.stream", STREAM, ""),
        ("forge", FORGE, "name = 'n'"),
        ("forge", FORGE, "owners = ['a']"),
    ] {
        of(&with(table, more));
        // Commands and webhooks share their names, and tables and workers.
        let twice = key.replace("hooks.command", "hooks.webhook").replace("worker", "table");
        assert_eq!(wrong_key(&format!("{0}{0}", with(table, more))).1, twice);
    }
    of(&format!("{COMMAND}{}", HOOK.replace("'h'", "'other'")));
    for text in [wrong_forges(), wrong_hooks(), wrong_collectors()].concat() {
        let key = text.lines().next().unwrap().trim_matches(['[', ']']).to_owned();
        let (line, found) = wrong_key(&text);
        let is_both = text.matches("[[").count() > 1;
        assert!(is_both || (line, &found) == (1, &key), "{line} {found}: {text}");
    }
}

#[test]
fn settings_are_taken_where_they_fit() {
    let sweep = format!("{WEBHOOK}sweep = ['repos/a/b', 'orgs/c', 'app']\nsweep_forge = 'github.com'\n");
    assert_eq!(wrong_key(&format!("{sweep}{FORGE}")).1, "events.webhook", "it has no tokens");
    assert_eq!(
        wrong_key(&format!("{sweep}{}tokens = ['x']\n", FORGE.replace("'github'", "'gitea'"))).1,
        "events.webhook"
    );
    let webhook = of(&format!("{sweep}{FORGE}tokens = ['x']\n")).events.webhook.remove(0);
    assert_eq!((webhook.name(), webhook.sweep_forge()), ("github", "github.com"));
    assert_eq!(webhook.sweep(), ["repos/a/b", "orgs/c", "app"]);
    assert_eq!(webhook.sweep_interval(), Duration::from_secs(600));
    let gitlab =
        sweep.replace("'github'\n", "'gitlab'\n").replace("'repos/a/b', 'orgs/c', 'app'", "'groups/a'");
    of(&format!("{gitlab}{}tokens = ['x']\n", FORGE.replace("'github'", "'gitlab'")));
    of("[[events.webhook]]\nforge = 'gogs'\nunsigned = true\nurl = 'http://h'\n");
    of("[[events.webhook]]\nforge = 'sourcehut'\n");
    let table = "[[events.table]]\nname = 't'\ncolumns = ['a text']\nmatch = '^x'\n";
    for more in [
        "format = 'json'",
        "format = 'separated'",
        "format = 'separated'\nseparator = ','",
        "format = 'pattern'\npattern = '(?<a>x)'",
        "database = 'x.db'",
        "database = 'postgres://u@h/db'",
    ] {
        of(&format!("{table}{more}\n"));
    }
    let config = of(&format!("{table}{WORKER}match = '^y'\nkey = 'k'\ncount = 3\ntimeout = '5s'\n"));
    let collected = config.events.collected();
    let takes = |line: &[u8]| collected.iter().map(|filter| filter.takes(line)).collect::<Vec<_>>();
    assert_eq!((takes(b"x1"), takes(b"y1")), (vec![true, false], vec![false, true]));
    let spec = config.events.worker[0].spec("/pool".as_ref()).unwrap();
    let fields = (&*spec.name, &spec.command[..], spec.folder.to_str(), spec.count, spec.key.as_deref());
    assert_eq!(fields, ("w", &["true".to_owned()][..], Some("/pool"), 3, Some("k")));
    assert_eq!(spec.timeout, Duration::from_secs(5));
    let default = of(WORKER).events.worker[0].spec("".as_ref()).unwrap();
    assert_eq!((default.count, default.timeout), (1, Duration::from_secs(60)));
    let rule = of(
        "[[mirror.rules]]\nrepositories = ['a/*']\ninterval = '1h'\nrefs = 'heads-and-tags'\nlfs = true\n",
    );
    let rule = rule.mirror.rules[0].rule();
    assert_eq!(rule.repositories, ["a/*"]);
    assert_eq!(rule.settings.interval, Some(Interval::Seconds(3600)));
    assert_eq!(
        (rule.settings.refs, rule.settings.lfs),
        (Some(vec!["heads-and-tags".to_owned()]), Some(true))
    );
    let rule = of("[[mirror.rules]]\nrepositories = ['a']\ninterval = 'auto'\n").mirror.rules[0].rule();
    assert_eq!((rule.settings.interval, rule.settings.lfs), (Some(Interval::Auto), None));
    let map = of("[[serve.map]]\nhost = 'h'\npath = '/(.*)'\nto = 'h/$1'\n");
    assert!(map.serve.map[0].rule().is_ok());
    let refs = of("[mirror]\nrefs = ['refs/heads/*', '^refs/heads/x']\n").mirror.refs;
    assert_eq!(
        (refs.is_default(), refs.patterns()),
        (false, vec!["refs/heads/*".to_owned(), "^refs/heads/x".to_owned()])
    );
    assert!(of("").mirror.refs.is_default());
}

#[test]
fn values_have_units() {
    for (text, size) in [
        ("7", Some(7)),
        ("7b", Some(7)),
        ("2k", Some(2 << 10)),
        ("2 KiB", Some(2 << 10)),
        ("3m", Some(3 << 20)),
        ("3MiB", Some(3 << 20)),
        ("4g", Some(4 << 30)),
        ("4gib", Some(4 << 30)),
        ("5t", Some(5 << 40)),
        ("5 TiB", Some(5 << 40)),
        ("6kb", Some(6000)),
        ("6 MB", Some(6_000_000)),
        ("6GB", Some(6_000_000_000)),
        ("6tb", Some(6_000_000_000_000)),
        ("x", None),
        ("1 x", None),
        ("", None),
        ("-1", None),
        ("99999999999t", None),
    ] {
        assert_eq!(size_argument(text).ok(), size, "{text}");
    }
    for (text, seconds) in [
        ("7", Some(7)),
        ("7s", Some(7)),
        ("2m", Some(120)),
        ("2 min", Some(120)),
        ("3h", Some(10_800)),
        ("4d", Some(345_600)),
        ("x", None),
        ("1w", None),
        ("", None),
        ("999999999999999999d", None),
    ] {
        assert_eq!(span_argument(text).ok(), seconds.map(Duration::from_secs), "{text}");
    }
    let every = |seconds| Some(IntervalSetting::Every(Span::seconds(seconds)));
    for (text, interval) in [
        ("auto", Some(IntervalSetting::Auto)),
        ("1", every(1)),
        ("5m", every(300)),
        ("315360000", every(315_360_000)),
        ("315360001", None),
        ("0", None),
        ("x", None),
    ] {
        assert_eq!(interval_argument(text).ok(), interval, "{text}");
    }
}

#[test]
fn values_are_read_and_shown_without_secrets() {
    let every = |seconds| Some(IntervalSetting::Every(Span::seconds(seconds)));
    assert_eq!(IntervalSetting::Auto.fixed_s(), None);
    assert_eq!(every(5).unwrap().fixed_s(), Some(5));
    assert_eq!(every(0).unwrap().own(), Interval::Seconds(1));
    let config = of("[mirror]\ninterval = 'auto'\nretry = '2m'\n[scratch]\nbytes_max = '1 KiB'\n");
    assert_eq!((config.mirror.interval, config.mirror.retry), (IntervalSetting::Auto, Span::seconds(120)));
    assert_eq!(config.scratch.bytes_max, Size(1024));
    for text in [
        "[mirror]\nretry = -1\n",
        "[mirror]\nretry = 'x'\n",
        "[mirror]\ninterval = 'x'\n",
        "[scratch]\nbytes_max = 'x'\n",
        "[mirror]\nrefs = ['a b']\n",
    ] {
        assert!(matches!(try_load(text), Err(Error::Wrong(_))), "{text}");
    }
    let shown = "[catalog]\nurl = 'postgres://u:secret@h/db'\n[[forge]]\ntype = 'gitlab'\nname = 'g'\n\
        url = 'https://u:secret@h'\ntokens = ['secret', 'secret']\n[mirror]\ninterval = '90s'\n\
        [traces.headers]\nx = 'secret'\n";
    let shown = toml::to_string(&of(shown)).unwrap();
    assert!(!shown.contains("secret") && shown.contains("tokens = [\"***\", \"***\"]"), "{shown}");
    for line in
        ["url = \"postgres://u@h/db\"", "interval = \"90s\"", "x = \"(hidden)\"", "url = \"https://***@h\""]
    {
        assert!(shown.contains(line), "{line} in {shown}");
    }
}

#[test]
fn tokens_and_rules_say_who_may_read() {
    let sum = "0123456789abcdefABCDEF".repeat(3)[..64].to_owned();
    let text = format!(
        "[access]\npublic = false\nrules = [{{ repositories = ['a/*'], tokens = ['ci'], addresses = \
        ['10.0.0.0/8', '::1'] }}, {{ repositories = ['b'], public = true }}]\n\
        [[access.tokens]]\nname = 'ci'\nsha256 = '{sum}'\n\
         [[access.tokens]]\nname = 'boss'\nsha256 = '{sum}'\nscopes = ['manage']\n\
        [events]\ntokens = ['boss']\n"
    );
    let config = of(&text);
    let access = config.access.rules().unwrap();
    assert!(!access.public);
    let tokens: Vec<(&str, bool)> = access.tokens.iter().map(|token| (&*token.name, token.manages)).collect();
    assert_eq!(tokens, [("ci", false), ("boss", true)]);
    assert_eq!(access.tokens[0].sha256[..4], [0x01, 0x23, 0x45, 0x67]);
    assert_eq!(access.tokens[0].sha256[8..11], [0xab, 0xcd, 0xef]);
    let rules = access.rules.iter().map(|rule| (rule.public, rule.tokens.len(), rule.addresses.len()));
    assert_eq!(rules.collect::<Vec<_>>(), [(false, 1, 2), (true, 0, 0)]);
    assert_eq!(access.rules[0].repositories, ["a/*"]);
    assert_eq!(config.access.names().0, [["a/*"]]);
    let gate = config.events.gate(&config.access).unwrap();
    assert_eq!((gate.tokens, gate.users), (vec![("boss".to_owned(), access.tokens[1].sha256)], None));
    for wrong in ["g".repeat(64), "a".repeat(63), "a".repeat(66)] {
        assert_eq!(wrong_key(&text.replace(&sum, &wrong)).1, "access");
    }
}
