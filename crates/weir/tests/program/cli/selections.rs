//! Commands that take one repository take many.

use crate::common::Env;

#[test]
fn selections_of_many_repositories() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    for name in ["a/one", "a/two", "b/three", "c"] {
        env.weir(&["add", "--name", name, upstream.to_str().unwrap()]);
    }
    let lines = |args: &[&str]| -> Vec<String> { env.weir(args).lines().map(str::to_owned).collect() };
    assert!(env.weir(&["mirror", "a", "c.git"]).contains("3 updated"));
    assert_eq!(env.weir_json(&["ls", "--state", "new"])[0]["name"], "b/three");
    env.weir(&["mirror", "b/*", "a/one"]);
    // Each is named once, whatever number of patterns match it.
    assert_eq!(lines(&["fsck", "a", "a/one", "c"]).len(), 3);
    assert_eq!(lines(&["compact", "c", "b/three"]).len(), 2);
    let sizes = env.weir_json(&["du", "a/*", "c"]);
    assert_eq!(sizes["repositories"].as_array().unwrap().len(), 3);
    let shared = env.weir(&["share", "--dry-run", "--reference", "c", "a/one", "b/three"]);
    assert_eq!(shared.lines().count(), 2, "{shared}");
    env.weir(&["manifest", "manifest.js", "a", "c"]);
    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(env.path("manifest.js")).unwrap()).unwrap();
    assert_eq!(
        manifest.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["/a/one.git", "/a/two.git", "/c.git"]
    );
    for command in ["mirror", "fsck", "compact", "du", "share"] {
        let said = env.weir_fails(&[command, "a", "nosuch"]);
        assert!(said.contains("'nosuch'"), "{command}: {said}");
    }
}

#[test]
fn selections_of_failures_and_of_what_is_gone() {
    let env = Env::new();
    env.weir(&["add", "--force", "--name", "a/gone", "/no/such/path"]);
    env.weir(&["add", "--force", "--name", "b/gone", "/no/such/path"]);
    env.weir(&["add", "--force", "--name", "c/gone", "/no/such/path"]);
    env.weir_fails(&["mirror"]);
    let failing = |filters: &[&str]| -> Vec<String> {
        let list = env.weir_json(&[&["errors"], filters].concat());
        let mut names: Vec<String> =
            list.as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(failing(&["gone", "network"]).len(), 3);
    assert_eq!(failing(&["a", "c/*"]), ["a/gone", "c/gone"]);
    assert_eq!(failing(&["gone", "a", "b"]), ["a/gone", "b/gone"]);
    assert!(failing(&["network", "a"]).is_empty());
    env.let_pass(100 * 86_400);
    let purged = env.weir_json(&["purge", "--dry-run", "--gone-for", "90d", "a", "c"]);
    assert_eq!(purged["purged"], serde_json::json!(["a/gone", "c/gone"]));
}
