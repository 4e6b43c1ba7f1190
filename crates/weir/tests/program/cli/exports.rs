//! Where exports go, and what they are, by the name of the target.

use crate::common::Env;

#[test]
fn export_refuses_formats_that_it_does_not_write() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "up", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    for target in ["x.zip", "x.tar.gz", "x.TGZ", "x.7z"] {
        let said = env.weir_fails(&["export", "up", target]);
        let suffix = target.rsplit('.').next().unwrap().to_lowercase();
        assert!(said.contains(&format!("weir export writes no .{suffix}: it writes a bundle (")), "{said}");
        assert!(!env.path(target).exists(), "{target}");
    }
    assert!(env.weir_fails(&["export", "up", "-"]).contains("not to '-'"));
    // A folder may have any name.
    for (target, options) in [("node.js", &[][..]), ("v2.40", &[]), ("y.zip", &["--format", "directory"])] {
        env.weir(&[&["export", "up", target][..], options].concat());
        assert_eq!(env.picture(&env.path(target)), env.picture(&upstream), "{target}");
    }
}
