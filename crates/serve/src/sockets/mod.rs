//! Sockets: where to listen, TLS, proxies, what is sent on them and how fast, and the threads that wait for
//! them.

mod listen_address;
pub(crate) mod paced;
pub(crate) mod proxies;
pub(crate) mod send;
pub(crate) mod shards;
pub(crate) mod socket;
pub(crate) mod tls;

pub use listen_address::ListenAddress;
pub use proxies::{TrustedProxies, network};
pub use socket::{Address, Listener};
pub use tls::Tls;
