//! Compares with git what names lead to that were made to mislead: refs that are called like commits, bytes
//! that are no UTF-8, paths that lead elsewhere.

use std::path::{Path, PathBuf};

use weir_browse::{
    ArchiveFormat, ArchivePaths, Error, ToldCommits, TreeArchive, commit_of, tree_of_revision,
};
use weir_git::Oid;
use weir_repo::{Repo, open_directory};
use weir_testing::{folder, run_git, tree_data};

/// Makes a bare repository in `dir`.
fn bare(dir: &Path) -> PathBuf {
    let path = dir.join("a.git");
    run_git(dir, &["init", "-q", "--bare", "-b", "main", path.to_str().unwrap()], b"");
    path
}

/// Returns what git prints, without the line end.
fn said(path: &Path, args: &[&str], input: &[u8]) -> String {
    String::from_utf8(run_git(path, args, input)).unwrap().trim().to_owned()
}

/// Writes a tree with the entries `of`: mode, name, id.
fn tree(path: &Path, of: &[(&str, &[u8], &str)]) -> String {
    said(path, &["hash-object", "-w", "--literally", "-t", "tree", "--stdin"], &tree_data(of))
}

fn commit(path: &Path, tree: &str, parents: &[&str]) -> String {
    let parents = parents.iter().flat_map(|parent| ["-p", parent]);
    let args: Vec<&str> = ["commit-tree", "-m", "c", tree].into_iter().chain(parents).collect();
    said(path, &args, b"")
}

fn archive_of(repo: &Repo, revision: &str, format: ArchiveFormat) -> Result<Vec<u8>, Error> {
    let (tree, commit) = tree_of_revision(repo, revision).unwrap();
    let time = commit.map_or(0, |commit| repo.history().commit(&mut repo.reader(), &commit).unwrap().time);
    let paths = ArchivePaths::default();
    let archive = TreeArchive { tree, commit, prefix: Vec::new(), time, paths, level: None };
    let mut out = Vec::new();
    format.write(repo, &archive, &mut out).map(|()| out)
}

#[test]
fn no_ref_passes_for_a_commit() {
    let dir = folder();
    let path = bare(dir.path());
    let [good, evil] = ["good", "evil"].map(|word| {
        let blob = said(&path, &["hash-object", "-w", "--stdin"], word.as_bytes());
        commit(&path, &tree(&path, &[("100644", b"f", &blob)]), &[])
    });
    let hidden = commit(&path, &tree(&path, &[]), &[]);
    run_git(&path, &["update-ref", "refs/heads/main", &good], b"");
    for name in [&good, &hidden] {
        // git itself refuses to make such a branch only in some commands.
        run_git(&path, &["update-ref", &format!("refs/heads/{name}"), &evil], b"");
    }
    let repo = open_directory(&path).unwrap();
    for name in [good.clone(), good.to_uppercase(), format!("{good}~0"), format!("{good}^{{commit}}")] {
        assert_eq!(commit_of(&repo, &name).unwrap().to_string(), good, "{name}");
        assert_eq!(said(&path, &["rev-parse", "-q", &name], b""), good, "{name}");
    }
    assert_eq!(commit_of(&repo, &format!("heads/{good}")).unwrap().to_string(), evil);
    // A branch with its name makes no object visible.
    assert!(matches!(commit_of(&repo, &hidden), Err(Error::NotFound(_))));
}

#[test]
fn digits_of_several_objects_mean_the_only_commit() {
    let dir = folder();
    let path = bare(dir.path());
    let blob = said(&path, &["hash-object", "-w", "--stdin"], b"x");
    let at = commit(&path, &tree(&path, &[("100644", b"f", &blob)]), &[]);
    run_git(&path, &["update-ref", "refs/heads/main", &at], b"");
    // A blob with the same four digits in front: one of 65,536.
    let alike = (0..).map(|n| format!("blob {n}")).find(|text| {
        let oid =
            weir_git::ObjectHasher::hash(weir_git::HashKind::Sha1, weir_git::Kind::Blob, text.as_bytes());
        oid.unwrap().to_string().starts_with(&at[..4])
    });
    said(&path, &["hash-object", "-w", "--stdin"], alike.unwrap().as_bytes());
    let repo = open_directory(&path).unwrap();
    assert_eq!(commit_of(&repo, &at[..4]).unwrap().to_string(), at);
    assert_eq!(said(&path, &["log", "-1", "--format=%H", &at[..4]], b""), at);
}

#[test]
fn nothing_is_behind_the_end_of_history() {
    let dir = folder();
    let path = bare(dir.path());
    let empty = tree(&path, &[]);
    let first = commit(&path, &empty, &[]);
    let second = commit(&path, &empty, &[&first]);
    let third = commit(&path, &empty, &[&second]);
    run_git(&path, &["update-ref", "refs/heads/main", &third], b"");
    run_git(&path, &["tag", "-a", "-m", "t", "of-tree", &empty], b"");
    std::fs::write(path.join("shallow"), format!("{second}\n")).unwrap();
    std::fs::remove_file(path.join("objects").join(&first[..2]).join(&first[2..])).unwrap();
    let repo = open_directory(&path).unwrap();
    assert_eq!(commit_of(&repo, "main~1").unwrap().to_string(), second);
    for name in ["main~2", "main~1^", "of-tree~1", "of-tree^2"] {
        assert!(
            matches!(
                commit_of(&repo, name),
                Err(Error::Repo(weir_repo::Error::NotFound(_)) | Error::NotFound(_))
            ),
            "{name}"
        );
    }
    let oid = Oid::from_hex_any(second.as_bytes()).unwrap();
    assert_eq!(ToldCommits::new(&repo).read(&oid).unwrap().parents, []);
    assert_eq!(repo.history().parents(&oid).unwrap(), []);
}

#[test]
fn archives_have_names_of_any_bytes() {
    let dir = folder();
    let path = bare(dir.path());
    let blob = said(&path, &["hash-object", "-w", "--stdin"], b"x\n");
    let link = said(&path, &["hash-object", "-w", "--stdin"], b"caf\xe9.txt");
    let ends = said(&path, &["hash-object", "-w", "--stdin"], b"x.txt eol=crlf\nout export-ignore\n");
    let below = tree(
        &path,
        &[("100644", b".gitattributes", &ends), ("100644", b"out", &blob), ("100644", b"x.txt", &blob)],
    );
    let only = said(&path, &["hash-object", "-w", "--stdin"], b"left/** export-ignore\n");
    let left = tree(&path, &[("100644", b"m", &blob)]);
    let top = tree(
        &path,
        &[
            ("100644", b".gitattributes", &only),
            ("100644", b"caf\xe8.txt", &blob),
            ("100644", b"caf\xe9.txt", &blob),
            ("40000", b"d\xe9", &below),
            ("40000", b"left", &left),
            ("120000", b"\xfflink", &link),
        ],
    );
    run_git(&path, &["update-ref", "refs/heads/main", &commit(&path, &top, &[])], b"");
    let repo = open_directory(&path).unwrap();
    let tar = archive_of(&repo, "main", ArchiveFormat::Tar).unwrap();
    assert!(tar == run_git(&path, &["archive", "--format=tar", "main"], b""), "the tars differ");
    let zip = archive_of(&repo, "main", ArchiveFormat::Zip).unwrap();
    let mut unpacked = zip::ZipArchive::new(std::io::Cursor::new(zip)).unwrap();
    let theirs = run_git(&path, &["archive", "--format=zip", "main"], b"");
    let mut theirs = zip::ZipArchive::new(std::io::Cursor::new(theirs)).unwrap();
    let members = |zip: &mut zip::ZipArchive<std::io::Cursor<Vec<u8>>>| {
        let count = zip.len();
        let member = |n| {
            let mut file = zip.by_index(n).unwrap();
            let mut data = Vec::new();
            std::io::Read::read_to_end(&mut file, &mut data).unwrap();
            (file.name_raw().to_vec(), file.unix_mode().unwrap_or(0o644) & 0o170_000 == 0o120_000, data)
        };
        (0..count).map(member).collect::<Vec<_>>()
    };
    assert_eq!(members(&mut unpacked), members(&mut theirs));
}

#[test]
fn archives_lead_nowhere_else() {
    let dir = folder();
    let path = bare(dir.path());
    let blob = said(&path, &["hash-object", "-w", "--stdin"], b"x\n");
    let below = tree(&path, &[("100644", b"config", &blob)]);
    let entries: [(&str, &[u8], &str); 7] = [
        ("40000", b"..", &below),
        ("40000", b".git", &below),
        ("40000", b".GIT", &below),
        ("100644", b"../evil", &blob),
        ("100644", b"/abs", &blob),
        ("100644", b".", &blob),
        ("100644", b"", &blob),
    ];
    for (n, entry) in entries.iter().enumerate() {
        run_git(
            &path,
            &["update-ref", &format!("refs/heads/{n}"), &commit(&path, &tree(&path, &[*entry]), &[])],
            b"",
        );
    }
    let twice = tree(&path, &[("100644", b"a", &blob), ("100644", b"a", &blob)]);
    run_git(&path, &["update-ref", "refs/heads/twice", &commit(&path, &twice, &[])], b"");
    let repo = open_directory(&path).unwrap();
    for n in 0..entries.len() {
        for format in [ArchiveFormat::Tar, ArchiveFormat::Zip] {
            let made = archive_of(&repo, &n.to_string(), format);
            assert!(made.is_err(), "{n}");
        }
    }
    assert!(matches!(archive_of(&repo, "twice", ArchiveFormat::Zip), Err(Error::WrongKind(_))));
}
