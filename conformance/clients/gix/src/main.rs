//! Clones, shallow clones and fetches by gitoxide: client clone|shallow|fetch URL DIRECTORY.

use gix::progress::Discard;
use gix::remote::{Direction, fetch::Shallow};
use std::sync::atomic::AtomicBool;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, what, url, target] = &*args else { return Err("usage: client clone|shallow|fetch URL \
        DIRECTORY".into()) };
    let interrupt = AtomicBool::new(false);
    let repo = if what == "fetch" {
        let repo = gix::open(target)?;
        repo.find_remote("origin")?.connect(Direction::Fetch)?.prepare_fetch(Discard,
        Default::default())?.receive(Discard, &interrupt)?;
        repo
    } else {
        let mut clone = gix::prepare_clone(url.as_str(), target)?;
        if what == "shallow" {
            clone = clone.with_shallow(Shallow::DepthAtRemote(1.try_into()?));
        }
        clone.fetch_only(Discard, &interrupt)?.0
    };
    println!("{}", repo.find_reference("refs/remotes/origin/main")?.peel_to_id()?);
    Ok(())
}
