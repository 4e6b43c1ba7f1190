//! Opens the pool that the command line names, or that is found.

use weir_arguments::Global;
use weir_pool::{CONFIG_NAME, Pool};

use crate::environment::environment;
use crate::error::{Error, Result};
use crate::pool_path::{PoolPath, find_pool};

/// Returns the path of the pool that the flags name, or that is found ([`find_pool`]).
pub(crate) fn path_of(global: &Global) -> Result<PoolPath> {
    find_pool(global.pool.as_deref()).map_err(Error::of)
}

/// Opens the pool that `global` names.
pub(crate) fn open_pool(global: &Global) -> Result<Pool> {
    let place = path_of(global)?;
    let config = weir_settings::load(&place.path.join(CONFIG_NAME), environment())?;
    match Pool::open(&place.path, config) {
        Err(weir_pool::Error::NoPool(_)) => Err(Error::NoPool(place)),
        opened => Ok(opened?),
    }
}
