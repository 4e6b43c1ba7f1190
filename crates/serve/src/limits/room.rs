//! Memory for requests that are being read or wait for their turn: a limit for all clients together, and a
//! part of it for one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::admission::Busy;

/// Bytes up to which a request or an answer is not counted: a client may have thousands of them under way
/// over HTTP/2.
const FREE_BYTES: usize = 4 << 10;
/// Bytes of all requests that are longer, and of those of one address.
const BYTES_MAX: usize = 512 << 20;
const ADDRESS_BYTES_MAX: usize = BYTES_MAX / 8;
const _: () =
    assert!(FREE_BYTES < ADDRESS_BYTES_MAX && ADDRESS_BYTES_MAX < BYTES_MAX, "no address takes all room");

/// The room that requests take.
#[derive(Default)]
pub(crate) struct RequestRoom(Mutex<TakenRoom>);

#[derive(Default)]
struct TakenRoom {
    bytes: usize,
    addresses: HashMap<IpAddr, usize>,
}

/// The room that one request takes; given back when dropped.
pub(crate) struct RoomShare {
    room: Arc<RequestRoom>,
    address: Option<IpAddr>,
    bytes: usize,
}

impl RequestRoom {
    /// Returns a share, without room yet, for a request of a client at `address`.
    pub(crate) fn share(self: &Arc<Self>, address: Option<IpAddr>) -> RoomShare {
        RoomShare { room: self.clone(), address, bytes: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, TakenRoom> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RoomShare {
    /// Takes or gives back room, so that the share has as much as a request of `bytes` needs.
    ///
    /// # Errors
    /// If there is not enough room; the share then keeps what it has.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), Busy> {
        let bytes = if bytes <= FREE_BYTES { 0 } else { bytes };
        if bytes == self.bytes {
            return Ok(());
        }
        let mut taken = self.room.lock();
        let all = taken.bytes - self.bytes + bytes;
        let of_address =
            self.address.map_or(0, |a| taken.addresses.get(&a).copied().unwrap_or(0) - self.bytes + bytes);
        if bytes > self.bytes && (all > BYTES_MAX || of_address > ADDRESS_BYTES_MAX) {
            return Err(Busy);
        }
        debug_assert!(of_address <= all, "one address has {of_address} bytes of {all}");
        taken.bytes = all;
        if let Some(address) = self.address {
            if of_address == 0 {
                taken.addresses.remove(&address);
            } else {
                taken.addresses.insert(address, of_address);
            }
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for RoomShare {
    fn drop(&mut self) {
        let _ = self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_shared_and_given_back() {
        let room = Arc::new(RequestRoom::default());
        let address = |n| Some(IpAddr::from([10, 0, 0, n]));
        let mut first = room.share(address(1));
        first.resize(FREE_BYTES).unwrap();
        assert_eq!(room.lock().bytes, 0, "little is free");
        first.resize(ADDRESS_BYTES_MAX).unwrap();
        assert!(room.share(address(1)).resize(FREE_BYTES + 1).is_err(), "an address has its part");
        assert!(first.resize(ADDRESS_BYTES_MAX + 1).is_err());
        let mut others: Vec<RoomShare> = (2..9).map(|n| room.share(address(n))).collect();
        others.iter_mut().for_each(|share| share.resize(ADDRESS_BYTES_MAX).unwrap());
        assert!(room.share(None).resize(FREE_BYTES + 1).is_err(), "there is no more");
        first.resize(FREE_BYTES + 1).unwrap();
        drop((first, others));
        let taken = room.lock();
        assert!(taken.bytes == 0 && taken.addresses.is_empty());
    }
}
