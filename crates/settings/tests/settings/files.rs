//! Programs, secrets and files that settings name, and the one that settings are in.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use weir_settings::{
    Config, Environment, Error, has_password, is_for_everybody, load, secret_files, set_catalog_url,
    template, unusable,
};
use weir_transport::{RootCerts, SshCommand};

use crate::{ENVIRONMENT, of, try_load};

fn set_mode(at: &Path, mode: u32) {
    fs::set_permissions(at, fs::Permissions::from_mode(mode)).unwrap();
}

/// Settings that name programs and files in `at`: all of them, where `name` is there.
fn naming(at: &Path, name: &str) -> Config {
    let path = at.join(name).display().to_string();
    of(&format!(
        "[catalog]\nurl = 'postgres://u@h/db?passfile={path}'\n\
         [hooks]\npost_update = ['./{name}']\nnotify = ['./{name}', 'x']\n\
         [[hooks.command]]\nname = 'c'\ncommand = ['{path}']\n\
         [[hooks.webhook]]\nname = 'h'\nurl = 'https://h/x'\nsecret_files = ['{path}']\n\
         [[events.worker]]\nname = 'w'\ncommand = ['{path}']\n\
         [[events.stream]]\nforge = 'gerrit'\nname = 's'\ncommand = ['{path}']\nurl = 'https://h'\n\
         [[events.webhook]]\nforge = 'github'\nsecret_files = ['{path}']\n\
         [access]\nhook = '{path}'\n\
         [transport]\nssh_command = 'A=1 {path} -x'\nnetrc = '{path}'\n\
         [serve]\naccess_log = '{path}/../{name}.d/log'\n\
         [[forge]]\ntype = 'github'\nurl = 'https://g'\ntoken_files = ['{path}']\n"
    ))
}

#[test]
fn files_and_programs_that_cannot_be_used_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let text = "h:*:*:*:x\n*:*:*:*:secret-that-is-long-enough\n";
    fs::write(at.join("there"), text).unwrap();
    set_mode(&at.join("there"), 0o755);
    fs::create_dir(at.join("there.d")).unwrap();
    let keys = |config: &Config| unusable(config, at).into_iter().map(|one| one.key).collect::<Vec<_>>();
    let found = keys(&naming(at, "there"));
    assert!(found.iter().all(|key| key == "serve.access_log"), "{found:?}");
    let expected = [
        "hooks.post_update",
        "hooks.notify",
        "command of the worker w",
        "command of the stream s",
        "command of the hook c",
        "hooks.webhook",
        "access.hook",
        "transport.ssh_command",
        "transport.netrc",
        "serve.access_log",
        "catalog.url",
        "token_files of the forge g",
        "events.webhook",
    ];
    assert_eq!(keys(&naming(at, "missing")), expected);
    fs::write(at.join("empty"), "# no secret\n").unwrap();
    let expected = [&expected[..8], &expected[9..11], &expected[12..]].concat();
    assert_eq!(keys(&naming(at, "empty")), expected);
    let secrets = secret_files(&naming(at, "there"));
    assert_eq!(secrets, vec![at.join("there"); 4]);
    let tls = "[serve]\nhttps = ['[::]:443']\ntls_certificate = '/nowhere'\ntls_key = '/nokey'\n";
    assert_eq!(keys(&of(tls)), ["serve.tls_certificate"]);
    assert_eq!(secret_files(&of(tls)), [PathBuf::from("/nokey")]);
    let app = "[[forge]]\ntype = 'github'\nurl = 'https://g'\napp = '1'\napp_key_file = '/nokey'\n";
    assert_eq!(keys(&of(app)), ["app_key_file of the forge g"]);
    assert_eq!(keys(&of("[serve]\naccess_log = 'log'\n[hooks]\nnotify = ['sh']\n")), [""; 0]);
    assert_eq!(keys(&of("[hooks]\nnotify = ['no-such-program']\n")), ["hooks.notify"]);
    assert!(is_for_everybody(&at.join("there")));
    set_mode(&at.join("there"), 0o770);
    assert!(!is_for_everybody(&at.join("there")) && !is_for_everybody(&at.join("missing")));
}

#[test]
fn hooks_are_told_of_what_they_select() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secrets");
    fs::write(&file, "a secret that is long enough\n").unwrap();
    let path = file.display();
    let config = of(&format!(
        "[[hooks.webhook]]\nname = 'h'\nurl = 'https://h/x'\nsecret_files = ['{path}']\n\
         [[hooks.webhook]]\nname = 'i'\nurl = 'http://h/x'\nrepositories = ['a/*']\nevents = ['update']\n\
         [[hooks.webhook]]\nname = 'j'\nurl = 'http://h/x'\nsecrets = ['another that is long enough']\n\
         [[hooks.command]]\nname = 'c'\ncommand = ['x']\nrepositories = ['b']\n\
         [[events.webhook]]\nforge = 'github'\nsecret_files = ['{path}']\n\
         secrets = ['one more long secret']\nname = 'e'\nurl = 'https://h'\n"
    ));
    let [file_signed, plain, signed] = &config.hooks.webhook[..] else { panic!("there are three") };
    assert_eq!([file_signed, plain, signed].map(|one| one.is_unsigned()), [false, true, false]);
    assert!(file_signed.signer().is_ok() && signed.signer().is_ok());
    let selection = plain.selection();
    assert_eq!([Some("a/x"), Some("b"), None].map(|name| selection.has(name)), [true, false, true]);
    assert_eq!(selection.events, ["update"]);
    assert!(signed.selection().has(Some("b")) && config.hooks.command[0].selection().has(Some("b")));
    assert_eq!(config.hooks.command[0].selection().repositories, ["b"]);
    let seconds = |span: weir_settings::Span| span.0.as_secs();
    assert_eq!((seconds(plain.timeout), plain.count), (30, 1));
    assert_eq!((seconds(config.hooks.command[0].timeout), config.hooks.command[0].count), (600, 1));
    assert!(plain.client(&ENVIRONMENT, None).is_ok());
    let options = config.events.webhook[0].options().unwrap();
    assert_eq!((&*options.name, options.unsigned, options.site.as_deref()), ("e", false, Some("https://h")));
    assert_eq!(options.secrets, ["one more long secret", "a secret that is long enough"]);
    fs::write(&file, "# none\n").unwrap();
    assert!(matches!(file_signed.signer(), Err(Error::Hook { name, .. }) if name == "h"));
    assert!(matches!(config.events.webhook[0].options(), Err(Error::Webhook { name, .. }) if name == "e"));
}

#[test]
fn environment_says_what_settings_leave_open() {
    let proxies = ENVIRONMENT.proxies();
    let expected = (None, Some("http://proxy"), Some("here"));
    assert_eq!((proxies.http.as_deref(), proxies.https.as_deref(), proxies.none_for.as_deref()), expected);
    assert_eq!(ENVIRONMENT.ssh_command(None), SshCommand::program("/x/ssh program".into()));
    assert_eq!(ENVIRONMENT.ssh_command(Some("a b")), SshCommand::line("a b"));
    let by_line: fn(&str) -> Option<std::ffi::OsString> = |name| match name {
        "GIT_SSH_COMMAND" => Some("c d".into()),
        "GIT_SSH" => Some("e".into()),
        "SSL_CERT_FILE" => Some("/x".into()),
        _ => None,
    };
    let environment = Environment { variable: by_line, ..ENVIRONMENT };
    assert_eq!(environment.ssh_command(None), SshCommand::line("c d"));
    assert!(matches!(environment.roots(None), RootCerts::PlatformVerifier));
    assert!(!matches!(environment.roots(Some("/nowhere".as_ref())), RootCerts::PlatformVerifier));
    assert_eq!(environment.non_empty("none"), None);
    let config = try_load("[mirror]\njobs = 3\n").unwrap();
    assert_eq!((config.environment.variable)("no_proxy"), Some("here".into()));
}

#[test]
fn catalog_url_is_set_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.toml");
    let url = "postgres://u@h/db";
    let read = || load(&file, ENVIRONMENT).unwrap().catalog.url;
    assert!(set_catalog_url(&file, Some(url)).unwrap());
    assert_eq!(read().as_deref(), Some(url));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "a new file");
    fs::write(&file, template(None)).unwrap();
    set_mode(&file, 0o644);
    assert!(set_catalog_url(&file, Some(url)).unwrap());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644, "as it was");
    assert!(set_catalog_url(&file, Some("postgres://u:secret@h/db")).unwrap());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "it has a password");
    assert!(set_catalog_url(&file, None).unwrap());
    assert_eq!(read(), None);
    fs::write(&file, "[catalog]\nx = 1\n").unwrap();
    assert!(!set_catalog_url(&file, Some(url)).unwrap());
    assert_eq!(fs::read_to_string(&file).unwrap(), "[catalog]\nx = 1\n");
    assert!(matches!(set_catalog_url(dir.path(), Some(url)), Err(Error::File(_))));
    assert!(has_password("postgres://u:p@h/db") && !has_password(url));
    for (before, after) in [
        ("a = 1\n", None),
        (
            "[catalog]\n# url = 'x'\nurl='y'\n[mirror]\njobs = 3\n",
            Some("[catalog]\n# url = 'x'\nURL\n[mirror]\njobs = 3\n"),
        ),
        ("#[catalog]\n#url = 'x'\n#[mirror]\n", Some("[catalog]\nURL\n#[mirror]\n")),
        ("[mirror]\njobs = 3\n[catalog]\n", Some("[mirror]\njobs = 3\n[catalog]\nURL\n")),
        ("# first\n[mirror]\n", Some("# first\n[catalog]\nURL\n\n[mirror]\n")),
    ] {
        fs::write(&file, before).unwrap();
        assert_eq!(set_catalog_url(&file, Some(url)).unwrap(), after.is_some(), "{before}");
        let expected = after.unwrap_or(before).replace("URL", &format!("url = \"{url}\""));
        assert_eq!(fs::read_to_string(&file).unwrap(), expected);
    }
}
