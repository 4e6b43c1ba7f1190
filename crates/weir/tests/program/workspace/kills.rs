//! The process that answers the kernel is killed while a build goes on.

use std::fs;
use std::time::Duration;

use weir_testing::{command, processes, skip, wait_until};

use super::{STATE, Workspace};
use crate::common::Env;

const FOLDERS: usize = 40;
const FILES: usize = 25;
const KILLS: usize = 50;

/// Each folder's files are joined, and then these.
const MAKEFILE: &str = "DIRS := $(wildcard d*)\nall: $(DIRS:%=out/%)\n\tcat $^ > all\n\
                        out/%: %/f*\n\t@mkdir -p out\n\tcat $^ > $@\n";

/// Makes an upstream of `commits` commits, each with other files. Returns it, and what a build of each makes.
fn upstream(env: &Env, commits: usize) -> (std::path::PathBuf, Vec<String>) {
    let up = env.init_bare("up.git");
    let (mut stream, mut built) = (String::new(), Vec::new());
    for n in 0..commits {
        stream += &format!("commit refs/heads/main\ncommitter C <c@x> {n} +0000\ndata 1\nx\n");
        stream += &format!("M 644 inline Makefile\ndata {}\n{MAKEFILE}\n", MAKEFILE.len());
        let mut folders: Vec<(String, String)> = Vec::new();
        for folder in 0..FOLDERS {
            let mut files: Vec<(String, String)> = Vec::new();
            for file in 0..FILES {
                let (path, content) = (format!("d{folder}/f{file}"), format!("{n} {folder} {file}\n"));
                stream += &format!("M 644 inline {path}\ndata {}\n{content}\n", content.len());
                files.push((path, content));
            }
            files.sort();
            folders.push((format!("d{folder}"), files.into_iter().map(|(_, content)| content).collect()));
        }
        folders.sort();
        built.push(folders.into_iter().map(|(_, joined)| joined).collect());
        stream += &format!("\nreset refs/tags/v{n}\nfrom refs/heads/main\n\n");
    }
    env.git_with(&up, &["fast-import", "--quiet"], stream.as_bytes());
    (up, built)
}

/// Returns the process that answers the kernel, of those that show a view: a child of the one that guards it.
fn server(shown: &processes::Strays) -> Option<u32> {
    shown.ids().into_iter().find_map(|id| processes::children(id).pop())
}

/// Returns whether the kernel sends again what a server was killed with (Linux 6.9).
pub(super) fn sends_again() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.trim().parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(9))
}

#[test]
fn builds_go_on_when_the_process_that_answers_is_killed() {
    if !sends_again() {
        return skip("Linux 6.9", "an older kernel cannot go on with another process");
    }
    let env = Env::new();
    let commits = 12;
    let (up, built) = upstream(&env, commits);
    env.mirror_new("it", &up);
    let (mut killed, mut last) = (0, None);
    for (n, expected) in built.iter().enumerate() {
        let Some(it) = Workspace::new(&env, &format!("it@v{n}"), &format!("work{n}")) else { return };
        fs::write(it.folder.join("mine"), b"mine").unwrap();
        let views = env.path(STATE).join("views");
        let view =
            fs::read_dir(&views).unwrap().map(|e| e.unwrap().path()).find(|path| path.is_dir()).unwrap();
        let shown = processes::Strays(view.to_str().unwrap().to_owned());
        wait_until(|| "nothing answers".to_owned(), || server(&shown).is_some());
        let mut make = command("make").args(["-s", "-j2"]).current_dir(&it.folder).spawn().unwrap();
        let ended = loop {
            // One that was killed is still listed until the one that guards it has waited for it.
            if let Some(id) = server(&shown).filter(|&id| last != Some(id)) {
                last = Some(id);
                killed += usize::from(processes::kill_found(id));
            }
            std::thread::sleep(Duration::from_millis(4));
            if let Some(ended) = make.try_wait().unwrap() {
                break ended;
            }
        };
        assert!(ended.success(), "after {killed} kills: {ended}");
        assert_eq!(&fs::read_to_string(it.folder.join("all")).unwrap(), expected);
        assert_eq!(fs::read(it.folder.join("mine")).unwrap(), b"mine");
        let status = env.git(&it.folder, &["status", "--porcelain"]);
        assert_eq!(status, "?? all\n?? mine\n?? out/");
        drop(it);
        if killed >= KILLS {
            return;
        }
    }
    panic!("only {killed} kills in {commits} builds");
}
