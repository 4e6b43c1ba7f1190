//! A fetch leaves out objects that were only moved or copied. The expected list is the exact difference of
//! all objects before and after.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use weir_git::Oid;
use weir_repo::{Budget, Query, Repo, open_directory, select};
use weir_testing::run_git;

fn git(folder: &Path, args: &[&str], input: &str) -> String {
    String::from_utf8(run_git(folder, args, input.as_bytes())).unwrap()
}

/// Creates a repository with fifty files in two folders of `from` (branch `old`), and a commit of `changes`.
fn history(folder: &Path, changes: &str) {
    git(folder, &["init", "-q", "--bare", "-b", "main"], "");
    let mut stream = String::from("commit refs/heads/old\ncommitter C <c@d> 1000 +0000\ndata 1\n1\n");
    for n in 0..50 {
        write!(stream, "M 644 inline from/{}/f{n}\ndata 3\n{n:03}\n", n % 2).unwrap();
    }
    stream += "M 644 inline other/file\ndata 1\no\n";
    stream += "commit refs/heads/main\ncommitter C <c@d> 2000 +0000\ndata 1\n2\nfrom refs/heads/old\n";
    stream += changes;
    git(folder, &["fast-import", "--quiet"], &stream);
}

fn selected(repo: &Repo, wants: &[Oid], haves: &[Oid]) -> BTreeSet<Oid> {
    let query = Query { wants, haves, cut: None, filter: None, budget: Budget::default() };
    select(repo.history(), &query).unwrap().objects.into_iter().collect()
}

#[test]
fn what_moved_is_not_sent_again() {
    let change = "M 644 inline to/0/f2\ndata 3\nnew\n";
    for (name, changes) in [
        ("a folder has another name", "R from to\n".to_owned()),
        ("a folder is in another", "R from/1 other/1\n".to_owned()),
        ("a file is in another folder", "R from/1/f1 other/f1\n".to_owned()),
        ("a file is there twice", "C from/1/f1 from/1/again\n".to_owned()),
        ("a folder is there twice", "C from/1 from/2\n".to_owned()),
        ("a folder has another name, and a file in it changed", format!("R from to\n{change}")),
        ("files have swapped places", "R from/0 x\nR from/1 from/0\nR x from/1\n".to_owned()),
        ("a folder is where a file was", "D other/file\nR from/0 other/file\n".to_owned()),
        ("nothing", String::new()),
        ("a folder is gone", "D from/1\n".to_owned()),
    ] {
        let folder = weir_testing::folder();
        history(folder.path(), &changes);
        let id =
            |name: &str| Oid::from_hex_any(git(folder.path(), &["rev-parse", name], "").trim().as_bytes());
        let (old, new) = (id("old").unwrap(), id("main").unwrap());
        let repo = open_directory(folder.path()).unwrap();
        let (all, had) = (selected(&repo, &[new], &[]), selected(&repo, &[old], &[]));
        let lacking: BTreeSet<Oid> = all.difference(&had).copied().collect();
        for time in ["first", "second"] {
            assert_eq!(selected(&repo, &[new], &[old]), lacking, "{name}, the {time} time");
        }
    }
}
