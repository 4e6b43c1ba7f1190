//! Makes a pool, mirrors a repository into it, and prints a file of its default branch.
//!
//! `cargo run -p weir-pool --example mirror_and_read -- POOL URL FILE`

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use weir_catalog::clock::now;
use weir_ground::Stop;
use weir_mirror::MirrorLoop;
use weir_pool::{CONFIG_NAME, MirrorGuard, Pool};
use weir_settings::Environment;

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, url, file] = arguments.as_slice() else { return Err("usage: POOL URL FILE".into()) };
    let (path, environment) = (Path::new(path), Environment::default());
    Pool::init(path, None, environment)?;
    let pool = Pool::open(path, weir_settings::load(&path.join(CONFIG_NAME), environment)?)?;
    let repository = weir_pool::entry(url, None)?;
    pool.catalog.add(std::slice::from_ref(&repository), now())?;

    let (mirror, guard) = (pool.mirror(None), MirrorGuard::take(&pool)?);
    let retry = Duration::from_secs(30);
    let once = MirrorLoop { mirror: &mirror, owner: &guard.owner, watch: false, all_first: true, retry };
    once.run(&pool.catalog, &mut |_| Ok(None), &Stop::default(), &mut |_| {})?;

    let repo = pool.open_repo(&pool.get(&repository.name)?)?;
    let (_, oid) = weir_repo::resolve_path(&repo, "HEAD", file.as_bytes())?;
    Ok(std::io::stdout().write_all(&repo.reader().require(&oid)?.data)?)
}
