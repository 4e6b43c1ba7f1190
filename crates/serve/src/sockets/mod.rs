//! Sockets: addresses, TLS, proxies, sending at a minimum rate, and the threads that wait for them.

mod listen_address;
pub(crate) mod paced;
pub(crate) mod proxies;
pub(crate) mod send;
pub(crate) mod shards;
pub(crate) mod socket;
pub(crate) mod tls;

pub use listen_address::{ListenAddress, ListenAddressError};
pub use proxies::{NoProxy, TrustedProxies, network};
pub use socket::{Address, Listener};
pub use tls::{CertificateError, Tls};
