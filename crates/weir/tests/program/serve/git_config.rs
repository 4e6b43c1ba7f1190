//! `weir upload-pack` in git's place: settings that hide refs count wherever git reads them from, and errors
//! that are fatal to git are not ignored.

use std::os::unix::fs::PermissionsExt;

use crate::common::Env;

/// Returns what `weir upload-pack` advertises of the repository, or its error.
fn shown(env: &Env, variables: &[(&str, &str)]) -> String {
    let mut command =
        env.weir_command(&["upload-pack", "--advertise-refs", env.path("it.git").to_str().unwrap()]);
    command
        .env_remove("GIT_CONFIG_NOSYSTEM")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat()
}

#[test]
fn what_hides_refs_counts_from_everywhere() {
    let env = Env::new();
    let repo = env.init_bare("it.git");
    let tree = env.git_with(&repo, &["mktree"], b"");
    let commit = env.git(&repo, &["commit-tree", "-m", "one", &tree]);
    for name in ["refs/heads/main", "refs/internal/x"] {
        env.git(&repo, &["update-ref", name, &commit]);
    }
    let hides = env.path("hides");
    std::fs::write(&hides, "[transfer]\n\thideRefs = refs/internal\n").unwrap();
    let hides = hides.to_str().unwrap();
    let said = shown(&env, &[]);
    assert!(said.contains("refs/internal/x"), "{said}");
    let everywhere: [&[(&str, &str)]; 4] = [
        &[("GIT_CONFIG_SYSTEM", hides)],
        &[("GIT_CONFIG_GLOBAL", hides)],
        &[
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "transfer.hideRefs"),
            ("GIT_CONFIG_VALUE_0", "refs/internal"),
        ],
        &[("GIT_CONFIG_PARAMETERS", "'transfer.hiderefs'='refs/internal'")],
    ];
    for variables in everywhere {
        let said = shown(&env, variables);
        assert!(said.contains("refs/heads/main") && !said.contains("refs/internal"), "{variables:?}: {said}");
    }
    for (key, value) in
        [("include.path", hides.to_owned()), ("includeIf.gitdir:it.git.path", hides.to_owned())]
    {
        env.git(&repo, &["config", key, &value]);
        assert!(!shown(&env, &[]).contains("refs/internal"), "{key}");
        env.git(&repo, &["config", "--unset", key]);
    }
    // Values and lines that are fatal to git.
    env.git(&repo, &["config", "uploadpack.allowFilter", "flase"]);
    let said = shown(&env, &[]);
    assert!(
        !said.contains("refs/heads/main")
            && said.contains("uploadpack.allowfilter = flase is neither true nor false"),
        "{said}"
    );
    env.git(&repo, &["config", "--unset", "uploadpack.allowFilter"]);
    let config = repo.join("config");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}[transfer\n\thideRefs = refs/internal\n")).unwrap();
    assert!(shown(&env, &[]).contains("is malformed"));
    // Formats that would be read wrongly.
    for (more, why) in [
        ("[core]\n\trepositoryformatversion = 1\n[extensions]\n\trefStorage = reftable\n", "tables.list"),
        ("[core]\n\trepositoryformatversion = 1\n[extensions]\n\trefStorage = other\n", "git refs migrate"),
        ("[extensions]\n\trefStorage = files\n", "the extension 'refstorage' of version 1"),
        ("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tfoo = bar\n", "extension 'foo' is unknown"),
        ("[core]\n\trepositoryformatversion = 2\n", "version 2"),
    ] {
        std::fs::write(&config, format!("{text}{more}")).unwrap();
        let said = shown(&env, &[]);
        assert!(said.contains(why) && !said.contains("refs/heads/main"), "{said}");
    }
    std::fs::write(&config, text).unwrap();
    assert!(shown(&env, &[]).contains("refs/internal/x"));
}

#[test]
fn secrets_are_for_their_owner() {
    let env = Env::new();
    let pool = env.path("another");
    env.weir(&["--pool", pool.to_str().unwrap(), "init"]);
    for (name, mode) in [("", 0o700), ("weir.toml", 0o600), ("catalog.db", 0o600)] {
        assert_eq!(std::fs::metadata(pool.join(name)).unwrap().permissions().mode() & 0o777, mode, "{name}");
    }
    let config = env.pool().join("weir.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(
        &config,
        format!(
            "{text}\n[[forge]]\ntype = \"github\"\nurl = \
        \"https://github.example\"\ntokens = [\"ghp_SECRET\"]\n\
        [[serve.fetch_on_demand]]\nrepositories = [\"x/*\"]\nurl = \"https://u:SECRET@h/{{path}}\"\n"
        ),
    )
    .unwrap();
    for said in [env.weir(&["config", "show"]), env.weir(&["--json", "config", "show"])] {
        assert!(said.contains("***") && !said.contains("SECRET"), "{said}");
    }
}
