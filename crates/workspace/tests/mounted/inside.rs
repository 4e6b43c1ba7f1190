//! Namespaces of a test's own, in which it mounts, and the processes that its workspaces need. All that is
//! mounted or started there goes with the test, however that ends.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_git::Oid;
use weir_repo::{Repo, open_directory};
use weir_testing::{output_of, short_command, skip};
use weir_workspace::{
    Error, FileTimes, LowerCommit, MountOptions, Processes, Result, Shown, StartingView, mount_guarded,
    serve_monitor,
};

/// Set in a test that runs in namespaces of its own.
const INSIDE: &str = "WEIR_TEST_INSIDE";
/// The work of a process that a test starts: a word, and fields with line breaks between them.
const WORK: &str = "WEIR_TEST_WORK";
/// The line that such a process says when it has begun.
const READY: &str = "it is there";

/// Returns true where the test is to do its work, in namespaces of its own. Elsewhere, runs it there, and
/// returns false.
pub fn is_inside() -> bool {
    if env::var_os(INSIDE).is_some() {
        return true;
    }
    let overlay = fs::read_to_string("/proc/filesystems").is_ok_and(|all| all.contains("\toverlay\n"));
    let fuse = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    let root = fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0);
    if !overlay || !fuse || !root {
        skip("overlay", "only root may mount, with overlayfs and FUSE in the kernel");
        return false;
    }
    let test = std::thread::current().name().expect("the name of the test").to_owned();
    let mut unshare = weir_testing::command("unshare");
    unshare.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    unshare.arg(env::current_exe().unwrap()).args(["--exact", &test, "--nocapture"]).env(INSIDE, "1");
    let said = unshare.output().unwrap();
    let text = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
    assert!(said.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
    false
}

/// Starts this program again to do some work, and waits until it has begun. Returns false if it ends before.
pub fn start(work: &str, fields: &[&OsStr]) -> bool {
    read_ready(&begin(work, fields, Stdio::null()))
}

fn begin(work: &str, fields: &[&OsStr], stdin: Stdio) -> std::cell::RefCell<BufReader<ChildStdout>> {
    let fields: Vec<String> = fields.iter().map(|field| field.to_str().unwrap().to_owned()).collect();
    let mut program = short_command(env::current_exe().unwrap());
    program.args(["--exact", "inside::process_does_what_a_test_asks_for", "--nocapture"]);
    program.env(WORK, [&[work.to_owned()], &fields[..]].concat().join("\n")).env(INSIDE, "1");
    let mut child = program.stdin(stdin).stdout(Stdio::piped()).spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    // The process that is asked forks, and ends at once.
    child.wait().unwrap();
    BufReader::new(stdout).into()
}

fn read_ready(stdout: &std::cell::RefCell<BufReader<ChildStdout>>) -> bool {
    let mut line = String::new();
    while stdout.borrow_mut().read_line(&mut line).unwrap() > 0 {
        if line.trim_end().ends_with(READY) {
            return true;
        }
        line.clear();
    }
    false
}

fn say_ready() -> std::io::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{READY}")?;
    out.flush()
}

/// Does the work of a process that a test starts; nothing, as a test.
#[test]
fn process_does_what_a_test_asks_for() {
    let Ok(asked) = env::var(WORK) else { return };
    // SAFETY: the only other thread waits for this one, and holds no lock.
    if unsafe { libc::fork() } != 0 {
        // SAFETY: nothing is called.
        unsafe { libc::_exit(0) };
    }
    let fields: Vec<&str> = asked.split('\n').collect();
    let done = match fields[..] {
        ["show", source, commit, times, view] => show(source.as_ref(), commit, times, view.as_ref()),
        ["answer", root] => serve_monitor(root.as_ref(), say_ready),
        ["files", view] => crate::remote::show_files(view.as_ref(), say_ready),
        ["hold", root] => crate::namespace::hold(root.as_ref(), say_ready),
        _ => panic!("no such work: {fields:?}"),
    };
    if let Err(e) = &done {
        eprintln!("{asked:?}: {e}");
    }
    // SAFETY: nothing is called.
    unsafe { libc::_exit(i32::from(done.is_err())) };
}

fn show(source: &Path, commit: &str, times: &str, view: &Path) -> Result<()> {
    // A process that ends unmounts what is mounted there by then: it has the lock until it has done so.
    let lock = fs::File::create(view.with_extension("lock")).unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while lock.try_lock().is_err() {
        assert!(Instant::now() < end, "another process shows {}", view.display());
        std::thread::sleep(Duration::from_millis(2));
    }
    let times = (!times.is_empty()).then(|| FileTimes::read(times.as_ref())).transpose()?;
    let repo = Arc::new(open_directory(source)?);
    let commit = Oid::from_hex_any(commit.as_bytes()).unwrap();
    let shown = Shown::Lower(LowerCommit { repo, commit, remote: None, times });
    mount_guarded(shown, view, &MountOptions { threads: 1, allow_other: false }, say_ready)
}

/// Starts processes as the program does.
pub struct TestProcesses;

struct TestView {
    source: PathBuf,
    commit: String,
    times: Option<PathBuf>,
    view: PathBuf,
}

impl StartingView for TestView {
    fn times_are_written(&mut self) {
        assert!(self.times.as_ref().is_none_or(|times| times.is_file()));
    }

    fn wait(mut self: Box<Self>) -> Result<()> {
        self.times_are_written();
        let times = self.times.as_deref().unwrap_or_else(|| Path::new(""));
        let fields = [self.source.as_os_str(), self.commit.as_ref(), times.as_ref(), self.view.as_ref()];
        match start("show", &fields) {
            true => Ok(()),
            false => Err(Error::Source(format!("cannot show {}", self.source.display()))),
        }
    }
}

impl Processes for TestProcesses {
    fn show(
        &self,
        source: &Path,
        commit: &str,
        times: Option<&Path>,
        view: &Path,
    ) -> Result<Box<dyn StartingView>> {
        let (times, commit) = (times.map(Path::to_owned), commit.to_owned());
        Ok(Box::new(TestView { source: source.to_owned(), commit, times, view: view.to_owned() }))
    }

    fn answer(&self, root: &Path) -> Result<()> {
        match start("answer", &[root.as_os_str()]) {
            true => Ok(()),
            false => Err(Error::Source("nobody answers".to_owned())),
        }
    }
}

/// Opens a git directory.
pub fn open(git_dir: &Path) -> Repo {
    open_directory(git_dir).unwrap()
}

/// Returns what git prints in `folder`, with the settings of nobody. It must succeed.
pub fn git(folder: &Path, args: &[&str]) -> String {
    String::from_utf8(output_of(&mut weir_testing::git(folder, args))).unwrap()
}
