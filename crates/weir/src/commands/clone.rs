//! `clone`: an ordinary git repository, from a weir with its index, or from an archive.
//!
//! What is taken is what a clone with git would take: one pack of HEAD, branches and tags. It comes with its
//! index, so that nothing is indexed here; both are checked against their checksums and each other, and what
//! is checked out against its ids. What broke off goes on where it ended.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use weir_archive::Region;
use weir_git::{HashKind, Oid, plain_sha};
use weir_repo::{Head, Pack, Repo};
use weir_transport::{HttpFiles, Scheme, Url};

use crate::cli::{CloneArgs, Global};
use crate::clone_check::check_tips;
use crate::config::{self, Config};
use crate::error::{Error, InRepo, Result};
use crate::output;
use crate::pool::{path_of, transport_options};

/// What a weir says of a clone.
#[derive(Debug, Deserialize, Serialize)]
struct Description {
    version: u32,
    object_format: String,
    head: Option<String>,
    head_oid: Option<String>,
    refs: Vec<(String, String)>,
    checksum: String,
    objects: u32,
    pack_bytes: u64,
    index_bytes: u64,
}

/// Bytes of a description that are read.
const DESCRIPTION_BYTES_MAX: u64 = 64 << 20;
/// How often what broke off is taken up again without a byte more.
const TRIES_MAX: u32 = 5;
/// Where a clone that is not whole yet keeps what it is a clone of.
const UNFINISHED: &str = "weir-clone.json";
const BUFFER_BYTES: usize = 1 << 20;

/// Where the parts of the new repository go.
struct Target {
    /// The working tree, or the bare repository.
    top: PathBuf,
    git_dir: PathBuf,
}

pub(crate) fn clone(global: &Global, args: CloneArgs) -> Result<()> {
    let started = Instant::now();
    let url = Url::parse(&args.repository)?;
    let top = args.directory.clone().unwrap_or_else(|| default_directory(&url, args.bare));
    let target = Target { git_dir: if args.bare { top.clone() } else { top.join(".git") }, top };
    let unfinished = target.git_dir.join(UNFINISHED);
    if !unfinished.exists() && fs::read_dir(&target.top).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Error::Message(format!(
            "'{}' already exists and is not empty; choose another folder",
            target.top.display()
        )));
    }
    let local = (url.scheme == Scheme::Local).then(|| url.local_path()).filter(|path| path.is_file());
    // Whoever stands between may be the server.
    let is_open_to_all = matches!(url.scheme, Scheme::Http { tls: false }) && !is_this_machine(&url.host);
    let is_from_archive = local.is_some();
    let (description, bytes) = if let Some(path) = local {
        from_archive(&path, &target)?
    } else {
        let config = path_of(global)
            .map(|pool| config::load(&pool.join(config::FILE_NAME)))
            .unwrap_or_else(|_| Ok(Config::default()))?;
        let fail = |e: weir_transport::Error| Error::Message(format!("cannot clone {url}: {e}"));
        let mut files = HttpFiles::new(&url, &transport_options(&config)).map_err(fail)?;
        let offered = match &mut files {
            Some(files) => describe(files).map_err(fail)?,
            None => None,
        };
        let (Some(mut files), Some(description)) = (files, offered) else { return hand_over(global, &args) };
        download(&mut files, &description, &target, global)?;
        let bytes = description.pack_bytes + description.index_bytes;
        (description, bytes)
    };
    let (branch, detached) = chosen(&args, &description)?;
    let is_wanted = !args.bare && !args.no_checkout;
    let tip = detached.clone().or_else(|| branch.as_ref()?.1.clone()).filter(|_| is_wanted);
    let is_sound = if args.verify || is_open_to_all {
        verify(&target)
    } else if is_from_archive {
        Ok(())
    } else {
        check_what_is_used(&target, &description, tip.as_deref())
    };
    is_sound.inspect_err(|_| discard(&target))?;
    write_repository(&target, &args, &description, &url, branch, detached.as_deref())?;
    let _ = fs::remove_file(&unfinished);
    let has_files = tip.is_some();
    if has_files {
        check_out(&target, detached.as_deref())?;
    }
    let took = started.elapsed().as_secs_f64();
    if global.json {
        output::json(
            &serde_json::json!({ "directory": target.top, "objects": description.objects, "bytes": bytes,
                "seconds": took }),
        )?;
    } else if !global.quiet {
        let (objects, bytes) = (description.objects, output::bytes(bytes));
        writeln!(
            output::stdout(),
            "cloned {url} into {}: {objects} objects, {bytes} in {took:.1} s",
            target.top.display()
        )?;
    }
    Ok(())
}

fn default_directory(url: &Url, bare: bool) -> PathBuf {
    let name = url
        .path
        .trim_end_matches('/')
        .trim_end_matches("/.git")
        .rsplit(['/', ':'])
        .next()
        .unwrap_or("repository");
    let name = name.strip_suffix(".git").or_else(|| name.strip_suffix(".tar")).unwrap_or(name);
    PathBuf::from(if bare { format!("{name}.git") } else { name.to_owned() })
}

/// What is no weir, or not over HTTP, is git's business.
fn hand_over(global: &Global, args: &CloneArgs) -> Result<()> {
    if !global.quiet {
        warn_line!("{}: the server offers no whole clone; using git clone", args.repository);
    }
    let mut command = Command::new("git");
    command.arg("clone").args(["--origin", &args.origin]);
    command.args(args.bare.then_some("--bare")).args(args.no_checkout.then_some("--no-checkout"));
    command.args(global.quiet.then_some("--quiet"));
    if let Some(branch) = &args.branch {
        command.args(["--branch", branch]);
    }
    command.arg("--").arg(&args.repository).args(&args.directory);
    Err(Error::Message(format!("cannot run git: {}", command.exec())))
}

/// What the weir there says; `None` if there is none, or it does not hold just what a clone takes.
fn describe(files: &mut HttpFiles) -> weir_transport::Result<Option<Description>> {
    let Some(file) = files.get("weir/clone", 0)? else { return Ok(None) };
    if file.content_type != "application/json" {
        return Ok(None);
    }
    let bad = |e: &dyn std::fmt::Display| {
        weir_transport::Error::Protocol(format!("malformed description of the clone: {e}"))
    };
    let description: Description =
        serde_json::from_reader(file.reader.take(DESCRIPTION_BYTES_MAX)).map_err(|e| bad(&e))?;
    check(&description).map_err(|e| bad(&e))?;
    Ok((description.version == 1).then_some(description))
}

/// Names and ids of a description become files: they are what they should be.
fn check(d: &Description) -> std::result::Result<HashKind, String> {
    let hash = HashKind::from_name(d.object_format.as_bytes())
        .ok_or_else(|| format!("object format '{}'", d.object_format))?;
    let is_oid = |text: &str| Oid::from_hex(hash, text.as_bytes()).is_some();
    // None but those: refs/replace, say, would show other content under a true id.
    let is_name = |name: &str| {
        (name.starts_with("refs/heads/") || name.starts_with("refs/tags/"))
            && weir_git::refname::is_valid(name.as_bytes())
    };
    if let Some((name, _)) = d.refs.iter().find(|(name, oid)| !is_name(name) || !is_oid(oid)) {
        return Err(format!("ref '{}'", name.escape_default()));
    }
    if d.head.as_ref().is_some_and(|head| !is_name(head))
        || d.head_oid.as_ref().is_some_and(|oid| !is_oid(oid))
        || !is_oid(&d.checksum)
    {
        return Err("HEAD or the checksum".to_owned());
    }
    let sizes = hash.len() as u64..1 << 48;
    if !sizes.contains(&d.pack_bytes) || !sizes.contains(&d.index_bytes) {
        return Err("the sizes".to_owned());
    }
    Ok(hash)
}

fn prepare(target: &Target) -> Result<PathBuf> {
    let packs = target.git_dir.join("objects/pack");
    for folder in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info"] {
        let path = target.git_dir.join(folder);
        fs::create_dir_all(&path).map_err(|source| Error::File { what: "make", path, source })?;
    }
    Ok(packs)
}

/// Takes the pack and its index, from where an earlier attempt ended, and checks both.
fn download(files: &mut HttpFiles, d: &Description, target: &Target, global: &Global) -> Result<()> {
    let packs = prepare(target)?;
    let unfinished = target.git_dir.join(UNFINISHED);
    let text = serde_json::to_vec(d).map_err(io::Error::from)?;
    let before: Option<Description> =
        fs::read(&unfinished).ok().and_then(|data| serde_json::from_slice(&data).ok());
    if before.is_some_and(|before| before.checksum != d.checksum) {
        // Upstream has moved on: what is here is of another pack.
        for entry in fs::read_dir(&packs)? {
            fs::remove_file(entry?.path())?;
        }
    }
    fs::write(&unfinished, text).map_err(|source| Error::File {
        what: "write",
        path: unfinished.clone(),
        source,
    })?;
    let bar = if std::io::stderr().is_terminal() && !global.quiet && !global.json {
        let style =
            ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left")
                .expect("a valid template");
        ProgressBar::new(d.pack_bytes + d.index_bytes).with_style(style)
    } else {
        ProgressBar::hidden()
    };
    let hash = check(d).map_err(Error::Message)?;
    let stem = packs.join(format!("pack-{}", d.checksum));
    for (suffix, bytes) in [("idx", d.index_bytes), ("pack", d.pack_bytes)] {
        let part = packs.join(format!("tmp_weir_{}.{suffix}", d.checksum));
        let done = stem.with_extension(suffix);
        if done.exists() {
            continue;
        }
        take(files, &format!("weir/clone-{}.{suffix}", d.checksum), &part, bytes, hash, &bar)?;
        fs::set_permissions(&part, fs::Permissions::from_mode(0o444))?;
        fs::rename(&part, &done).map_err(|source| Error::File { what: "write", path: done, source })?;
    }
    bar.finish_and_clear();
    check_pack(&stem, hash, d).inspect_err(|_| {
        // Never to be gone on from.
        let _ = (fs::remove_file(stem.with_extension("idx")), fs::remove_file(stem.with_extension("pack")));
    })
}

/// Takes a file of `bytes` bytes which ends with its own checksum.
fn take(
    files: &mut HttpFiles,
    name: &str,
    path: &Path,
    bytes: u64,
    hash: HashKind,
    bar: &ProgressBar,
) -> Result<()> {
    let fail = |source| Error::File { what: "write", path: path.to_owned(), source };
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(fail)?;
    let checksum_bytes = hash.len() as u64;
    let mut sum = plain_sha(hash);
    let mut tail = Vec::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut at, mut tries) = (0, 0);
    // What an earlier attempt has left is summed as if it came now.
    let mut digest = |data: &[u8], at: u64| {
        let summed = (bytes - checksum_bytes).saturating_sub(at).min(data.len() as u64) as usize;
        sum.update(&data[..summed]);
        tail.extend_from_slice(&data[summed..]);
    };
    let left = file.metadata().map_err(fail)?.len();
    if left > bytes {
        file.set_len(0).map_err(fail)?;
    }
    while let Ok(n @ 1..) = file.read(&mut buffer) {
        digest(&buffer[..n], at);
        at += n as u64;
        bar.inc(n as u64);
    }
    while at < bytes {
        let broke_off: String = match files.get(name, at) {
            Ok(None) => {
                return Err(Error::Message(
                    "the repository has changed meanwhile; clone it again".to_owned(),
                ));
            }
            Ok(Some(mut answer)) => {
                // From the start again, if it cannot be otherwise.
                let mut skip = at - answer.from;
                loop {
                    match answer.reader.read(&mut buffer) {
                        Ok(0) => break "it ended early".to_owned(),
                        Ok(n) if n as u64 <= skip => skip -= n as u64,
                        Ok(n) => {
                            let data = &buffer[skip as usize..n];
                            let data = &data[..(data.len() as u64).min(bytes - at) as usize];
                            skip = 0;
                            file.seek(SeekFrom::Start(at))
                                .and_then(|_| file.write_all(data))
                                .map_err(fail)?;
                            digest(data, at);
                            at += data.len() as u64;
                            bar.inc(data.len() as u64);
                            tries = 0;
                            if at == bytes {
                                break String::new();
                            }
                        }
                        Err(e) => break e.to_string(),
                    }
                }
            }
            Err(e) => e.to_string(),
        };
        if at < bytes {
            tries += 1;
            if tries > TRIES_MAX {
                let what = format!("{name}: download interrupted at byte {at} of {bytes}: {broke_off}");
                return Err(Error::Message(format!("{what}; run the same command again to resume")));
            }
            std::thread::sleep(Duration::from_millis(200) * 2u32.pow(tries));
        }
    }
    if sum.finish().as_bytes() != tail {
        file.set_len(0).map_err(fail)?;
        return Err(Error::Message(format!("{name}: wrong checksum; clone it again")));
    }
    // Not synced: a clone that the machine's failure took is made again, and what it left is checked before
    // it counts.
    Ok(())
}

/// Checks that pack and index belong together: checksums, the number of objects, and each entry's CRC-32.
fn check_pack(stem: &Path, hash: HashKind, d: &Description) -> Result<()> {
    let open = |suffix: &str| -> Result<Region> {
        let path = stem.with_extension(suffix);
        let file =
            File::open(&path).map_err(|source| Error::File { what: "read", path: path.clone(), source })?;
        let len = file.metadata()?.len();
        // SAFETY: this process created the file in its own folder, and no longer writes to it.
        Ok(unsafe { Region::map(Arc::new(file), len)? })
    };
    let pack = Pack::open("the pack", open("pack")?, open("idx")?, hash).in_repo("the clone")?;
    let bad = |what: &str| Err(Error::Message(format!("pack and index do not match: {what}")));
    if pack.checksum().to_string() != d.checksum || pack.index().pack_checksum() != pack.checksum() {
        return bad("their checksums differ");
    }
    if pack.index().count() != d.objects {
        return bad("the number of objects");
    }
    if !pack.crcs_match().in_repo("the clone")? {
        return bad("an entry is not what its checksum says");
    }
    Ok(())
}

/// Takes the packs out of an archive: shared with it where the file system can, else copied.
fn from_archive(path: &Path, target: &Target) -> Result<(Description, u64)> {
    let repo = Repo::open_archive(path).in_repo(&path.display().to_string())?;
    let packs = prepare(target)?;
    let mut bytes = 0;
    let mut objects = 0;
    let mut written = HashSet::new();
    for pack in repo.objects().packs() {
        let name = pack.name().rsplit('/').next().unwrap_or_default();
        // A fork may have fetched the very pack that its base has.
        if !written.insert(name) {
            continue;
        }
        objects += pack.index().count();
        for (suffix, region) in [("pack", pack.data()), ("idx", pack.index().data())] {
            let path = packs.join(format!("{name}.{suffix}"));
            bytes += region.len() as u64;
            weir_repo::copy_out(region, &path).map_err(|source| Error::File {
                what: "write",
                path,
                source,
            })?;
        }
    }
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let refs = repo.refs();
    let listed = refs.list().iter().filter(|r| weir_git::refname::is_head_or_tag(&r.name));
    let description = Description {
        version: 1,
        object_format: repo.hash().name().to_owned(),
        head: match &refs.head {
            Head::Symbolic(name) => Some(text(name)),
            _ => None,
        },
        head_oid: refs.head_oid().map(|oid| oid.to_string()),
        refs: listed.map(|r| (text(&r.name), r.oid.to_string())).collect(),
        checksum: String::new(),
        objects,
        pack_bytes: 0,
        index_bytes: 0,
    };
    if !repo.history().shallow().is_empty() {
        let lines: String = repo.history().shallow().iter().map(|oid| format!("{oid}\n")).collect();
        fs::write(target.git_dir.join("shallow"), lines)?;
    }
    Ok((description, bytes))
}

/// The new repository's objects, before it has refs.
fn open(target: &Target) -> Result<Repo> {
    fs::write(target.git_dir.join("HEAD"), "ref: refs/heads/main\n")?;
    weir_repo::open_directory(&target.git_dir).in_repo("the clone")
}

/// Inflates and hashes every object.
fn verify(target: &Target) -> Result<()> {
    let report = weir_repo::fsck(&open(target)?).in_repo("the clone")?;
    match report.problems.first().or(report.unchecked.first()) {
        None => Ok(()),
        Some(problem) => Err(Error::Message(format!("the clone is damaged: {problem}"))),
    }
}

/// Hashes what refs name and what is checked out.
fn check_what_is_used(target: &Target, d: &Description, tip: Option<&str>) -> Result<()> {
    let hash = check(d).map_err(Error::Message)?;
    let oid = |text: &String| Oid::from_hex(hash, text.as_bytes());
    let tips: Vec<Oid> = d.refs.iter().map(|(_, oid)| oid).chain(&d.head_oid).filter_map(oid).collect();
    check_tips(&open(target)?, &tips, tip.and_then(|tip| Oid::from_hex(hash, tip.as_bytes())))
}

/// Removes what is not to be trusted: the same command does not go on from it. Nothing else was there.
fn discard(target: &Target) {
    let _ = fs::remove_dir_all(&target.git_dir);
}

/// Whether `host` is this machine: nobody stands between.
fn is_this_machine(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// The branch that is checked out, with its commit unless it is unborn; or the commit or tag, if none is.
type Chosen = (Option<(String, Option<String>)>, Option<String>);

fn chosen(args: &CloneArgs, d: &Description) -> Result<Chosen> {
    let find = |name: &str| d.refs.iter().find(|(known, _)| known == name);
    Ok(match &args.branch {
        Some(name) => {
            if let Some((_, oid)) = find(&format!("refs/heads/{name}")) {
                (Some((name.clone(), Some(oid.clone()))), None)
            } else if let Some((_, oid)) = find(&format!("refs/tags/{name}")) {
                (None, Some(oid.clone()))
            } else {
                return Err(Error::Message(format!(
                    "Remote branch {name} not found in upstream {}",
                    args.origin
                )));
            }
        }
        None => match d.head.as_ref().and_then(|head| head.strip_prefix("refs/heads/")) {
            Some(name) => (Some((name.to_owned(), d.head_oid.clone())), None),
            None => (None, d.head_oid.clone()),
        },
    })
}

/// Writes configuration and refs as git does.
fn write_repository(
    target: &Target,
    args: &CloneArgs,
    d: &Description,
    url: &Url,
    branch: Option<(String, Option<String>)>,
    detached: Option<&str>,
) -> Result<()> {
    let git_dir = &target.git_dir;
    let write = |name: &str, text: String| {
        let path = git_dir.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, text).map_err(|source| Error::File { what: "write", path, source })
    };
    let find = |name: &str| d.refs.iter().find(|(known, _)| known == name);
    let origin = &args.origin;
    let mut names: Vec<(String, &String)> = Vec::new();
    for (name, oid) in &d.refs {
        match name.strip_prefix("refs/heads/").filter(|_| !args.bare) {
            Some(short) => names.push((format!("refs/remotes/{origin}/{short}"), oid)),
            None => names.push((name.clone(), oid)),
        }
    }
    names.sort();
    // Without a word that they are peeled: git does that when it packs refs the next time.
    write("packed-refs", names.iter().map(|(name, oid)| format!("{oid} {name}\n")).collect())?;
    match (&branch, detached) {
        (Some((name, oid)), _) => {
            write("HEAD", format!("ref: refs/heads/{name}\n"))?;
            if let (Some(oid), false) = (oid, args.bare) {
                write(&format!("refs/heads/{name}"), format!("{oid}\n"))?;
            }
        }
        (None, Some(oid)) => write("HEAD", format!("{oid}\n"))?,
        (None, None) => write("HEAD", "ref: refs/heads/main\n".to_owned())?,
    }
    if let (Some(head), false) =
        (d.head.as_ref().and_then(|head| head.strip_prefix("refs/heads/")), args.bare)
        && find(&format!("refs/heads/{head}")).is_some()
    {
        write(&format!("refs/remotes/{origin}/HEAD"), format!("ref: refs/remotes/{origin}/{head}\n"))?;
    }
    let is_sha1 = d.object_format == HashKind::Sha1.name();
    let mut config = format!(
        "[core]\n\trepositoryformatversion = {}\n\tfilemode = true\n\tbare = {}\n",
        i32::from(!is_sha1),
        args.bare
    );
    if !args.bare {
        config.push_str("\tlogallrefupdates = true\n");
    }
    if !is_sha1 {
        config.push_str(&format!("[extensions]\n\tobjectformat = {}\n", d.object_format));
    }
    config.push_str(&format!("[remote {}]\n\turl = {}\n", quoted(origin), quoted(&remote_url(url))));
    if !args.bare {
        config
            .push_str(&format!("\tfetch = {}\n", quoted(&format!("+refs/heads/*:refs/remotes/{origin}/*"))));
        if let Some((name, _)) = &branch {
            config.push_str(&format!(
                "[branch {}]\n\tremote = {origin}\n\tmerge = {}\n",
                quoted(name),
                quoted(&format!("refs/heads/{name}"))
            ));
        }
    }
    write("config", config)
}

/// A string as git's configuration has it.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// What the remote is called: whole, so that it means the same from elsewhere.
fn remote_url(url: &Url) -> String {
    if url.scheme != Scheme::Local {
        return url.as_str().to_owned();
    }
    let path = url.local_path();
    fs::canonicalize(&path).unwrap_or(path).display().to_string()
}

fn check_out(target: &Target, detached: Option<&str>) -> Result<()> {
    let git = || {
        let mut command = Command::new("git");
        command.arg("-C").arg(&target.top);
        command
    };
    let mut command = git();
    command.args(["-c", "advice.detachedHead=false"]);
    // Making the files is most of a clone: as many workers as there are cores, unless git's configuration
    // says how many.
    let says_workers = git()
        .args(["config", "--get", "checkout.workers"])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|s| s.success());
    if !says_workers {
        command.args(["-c", "checkout.workers=0"]);
    }
    match detached {
        Some(oid) => command.args(["checkout", "--quiet", "--detach", oid]),
        // HEAD is a branch without an index yet: what is in neither is checked out.
        None => command.args(["reset", "--hard", "--quiet"]),
    };
    let why = match command.status() {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => format!("git ended with {status}"),
        Err(e) => format!("git cannot be run: {e}"),
    };
    let top = target.top.display();
    Err(Error::Message(format!(
        "the clone is complete, but nothing is checked out: {why}; run 'git -C {top} reset --hard'"
    )))
}
