//! Forges, and credentials for clones from them.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use weir_crawl::{CrawlSource, ListingFilter, ListingScope, WantedRepositories};
use weir_forge::{ForgeKind, Listed, MetadataKind};
use weir_ground::Stop;
use weir_settings::{ForgeConfig, ForgeCredentials};
use weir_transport::{CredentialSource, Url};

use crate::of;

fn forge(kind: &str, url: &str, more: &str) -> ForgeConfig {
    of(&format!("[[forge]]\ntype = '{kind}'\nurl = '{url}'\n{more}\n")).forge.remove(0)
}

#[test]
fn forge_is_as_its_table_says() {
    let default = forge("gitea", "https://h:81/x", "");
    assert_eq!((default.name(), default.limit(), default.interval_s()), ("h_81".to_owned(), 0, 86_400));
    assert!(!default.lists_accounts() && default.has_metadata());
    let kinds = vec![MetadataKind::Issues, MetadataKind::Pulls, MetadataKind::Releases];
    assert_eq!(default.metadata(), (false, kinds));
    let prefix = "h_81".to_owned();
    assert_eq!(default.wanted(), WantedRepositories { prefix, ..WantedRepositories::default() });
    assert_eq!(default.scope(), ListingScope::new("gitea", "https://h:81/x", &[], &[]));
    let more = "name = 'n'\nsite = 'https://s'\nclone_from = ['c']\nowners = ['A']\nwikis = true\n\
        accounts = true\nmetadata = ['pulls']\nlanguages = ['Rust']\nforks = false\narchived = false\n\
        private = false\nstars_min = 3\nsize_max = '4 KiB'\nactive_since = '2020-01-02'\ninclude = ['A/*']\n\
        exclude = ['A/x']\nlimit = 9\ninterval = '1h'\nclone_with_tokens = false\n";
    let all = forge("gitea", "https://h", more);
    let filter = ListingFilter {
        languages: vec!["Rust".to_owned()],
        skip_forks: true,
        skip_archived: true,
        skip_private: true,
        stars_min: 3,
        kibibytes_max: Some(4),
        active_since: Some("2020-01-02".to_owned()),
    };
    let wanted = WantedRepositories {
        filter,
        include: vec!["A/*".to_owned()],
        exclude: vec!["A/x".to_owned()],
        wikis: true,
        prefix: "n".to_owned(),
        site: Some("https://s".to_owned()),
        clone_from: vec!["c".to_owned()],
    };
    assert_eq!(all.wanted(), wanted);
    assert_eq!((all.limit(), all.interval_s(), all.lists_accounts()), (9, 3600, true));
    assert_eq!((all.metadata(), all.clone_user()), ((true, vec![MetadataKind::Pulls]), None));
    assert_eq!(all.scope(), ListingScope::new("gitea", "https://h", &["A".to_owned()], &[]));
    assert_eq!(forge("folder", "/srv/git", "").name(), "git");
    assert_eq!(forge("folder", "/", "").name(), "folder");
    let named = forge("gitlab", "https://u:p@h", "name = 'n'");
    assert_eq!(named.scope(), ListingScope::new("gitlab", "https://***@h", &[], &[]));
    for (kind, user, has_metadata) in [
        ("github", Some("x-access-token"), true),
        ("gitlab", Some("oauth2"), true),
        ("forgejo", Some("oauth2"), true),
        ("bitbucket", Some("x-token-auth"), false),
        ("sourcehut", None, false),
        ("gerrit", None, false),
        ("cgit", None, false),
    ] {
        let one = forge(kind, "https://h", "");
        assert_eq!((one.clone_user(), one.has_metadata()), (user, has_metadata), "{kind}");
    }
    for kind in "github gitlab gitea bitbucket sourcehut gerrit cgit gitweb manifest".split(' ') {
        let one = forge(kind, "https://h/x", "");
        assert!(one.open(&Stop::default()).is_ok() && one.open_once().is_ok(), "{kind}");
    }
}

#[test]
fn forge_names_its_repositories_and_no_others() {
    let more = "include = ['a/*', 'B/*']\nexclude = ['a/secret']\nclone_from = ['ssh.h']\n\
        owners = ['A', 'b']\n";
    let one = forge("gitlab", "https://h", more);
    let listed = |full_name: &str, clone_url: &str| Listed {
        full_name: full_name.to_owned(),
        clone_url: clone_url.to_owned(),
        ..Listed::default()
    };
    let name = |full_name: &str, clone_url: &str| one.name_of(&listed(full_name, clone_url)).map_err(|_| ());
    assert_eq!(name("a/x", "https://h/a/x.git"), Ok(Some("h/a/x".to_owned())));
    assert_eq!(name("a/x", "git://ssh.h/a/x.git"), Ok(Some("h/a/x".to_owned())));
    assert_eq!(name("a/x", "http://h/a/x.git"), Ok(Some("h/a/x".to_owned())));
    for (full_name, found) in
        [("a/secret", Ok(None)), ("c/x", Ok(None)), ("a/.git", Err(())), ("a/ ", Err(()))]
    {
        assert_eq!(name(full_name, "https://h/x"), found, "{full_name}");
    }
    for elsewhere in ["https://other/x", "/etc", "file:///etc", "https://u@h/x", "ssh://h/x", "https://h.x/x"]
    {
        assert_eq!(name("a/x", elsewhere), Err(()), "{elsewhere}");
    }
    let is_of = |full_name: &str| one.is_of_owners(&listed(full_name, ""));
    assert_eq!(["a/x", "B/y", "c/x", "ab/x"].map(is_of), [true, true, false, false]);
    assert!(forge("gitlab", "https://h", "").is_of_owners(&listed("c/x", "")));
    let folder = forge("folder", "/srv/git", "");
    assert_eq!(folder.name_of(&listed("x", "/srv/git/x")).unwrap(), Some("git/x".to_owned()));
}

#[test]
fn forge_of_github_is_chosen_by_its_name() {
    let default = of("").github(None).unwrap();
    assert_eq!((default.kind, &*default.url), (ForgeKind::Github, "https://github.com"));
    let one = "[[forge]]\ntype = 'github'\nurl = 'https://github.com/'\nlimit = 7\n";
    let other = "[[forge]]\ntype = 'github'\nurl = 'https://github.com'\nname = 'two'\nlimit = 8\n";
    let elsewhere = "[[forge]]\ntype = 'gitea'\nurl = 'https://github.com'\nname = 'g'\n\
        [[forge]]\ntype = 'github'\nurl = 'https://ghe'\n";
    let both = of(&format!("{elsewhere}{one}{other}"));
    assert!(both.github(None).is_err(), "there are two");
    assert_eq!(both.github(Some("two")).unwrap().limit, 8);
    assert_eq!(both.github(Some("github.com")).unwrap().limit, 7);
    assert!(both.github(Some("g")).is_err() && both.github(Some("ghe")).is_err());
    assert_eq!(of(&format!("{elsewhere}{one}")).github(None).unwrap().limit, 7);
    assert_eq!(of(elsewhere).github(None).unwrap().limit, 0);
}

#[test]
fn forge_gives_its_tokens_to_its_own_host() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    fs::write(&file, "\u{feff}# a comment\n\n  second \nthird\n").unwrap();
    let path = file.display();
    let text = format!(
        "[[forge]]\ntype = 'gitlab'\nurl = 'https://h/'\ntokens = ['first']\ntoken_files = ['{path}']\n\
         [[forge]]\ntype = 'github'\nurl = 'https://g'\ntokens = ['own']\nclone_with_tokens = false\n\
         [[forge]]\ntype = 'gitea'\nurl = 'https://lost'\ntoken_files = ['/nowhere']\n\
         [[forge]]\ntype = 'github'\nurl = 'https://app'\napp = '1'\napp_key_file = '{path}'\n\
         tokens = ['t']\n"
    );
    let forges = of(&text).forge;
    assert_eq!(forges[0].tokens().unwrap(), ["first", "second", "third"]);
    assert!(forges[2].tokens().is_err() && forges[2].open_once().is_err());
    assert!(forges[0].app().unwrap().is_none() && forges[3].app().is_err(), "it is no key");
    let files: Vec<&PathBuf> = forges.iter().flat_map(ForgeConfig::secret_files).collect();
    assert_eq!(files, [&file, &PathBuf::from("/nowhere"), &file]);
    let credentials = ForgeCredentials::of(&forges);
    let found = |url: &str| {
        let found = credentials.find(&Url::parse(url).unwrap());
        found.into_iter().map(|one| format!("{}:{}", one.user, one.password)).collect::<Vec<_>>()
    };
    assert_eq!(found("https://h/a/b"), ["oauth2:first", "oauth2:second", "oauth2:third"]);
    assert_eq!(found("https://app/a/b"), ["x-access-token:t"]);
    for none in ["https://g/a/b", "https://lost/a/b", "https://other/a/b", "http://h/a/b"] {
        assert!(found(none).is_empty(), "{none}");
    }
    assert_eq!(forges[0].interval.0, Duration::from_secs(86_400));
}
