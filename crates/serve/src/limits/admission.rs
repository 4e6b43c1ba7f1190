//! Decides which request may have something computed next.
//!
//! The number of turns is limited in all, per address and per repository. Requests get their turns in the
//! order in which they came, but pass those whose address or repository is at its limit. If the queue is too
//! long, or the wait takes too long, a request is refused. Work that waits for its client to read gives its
//! turn back meanwhile, and is the next to have a turn afterwards.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// How many turns there are at once, and how many requests may wait.
#[derive(Clone, Debug)]
pub(crate) struct TurnLimits {
    pub(crate) all: usize,
    pub(crate) per_address: usize,
    pub(crate) per_repository: usize,
    pub(crate) queue: usize,
    /// How many requests of one address may wait.
    pub(crate) queue_per_address: usize,
    pub(crate) wait: Duration,
    /// How many may be under way while they wait for their clients.
    pub(crate) away: usize,
    /// How many of one address may be under way while they wait for their clients.
    pub(crate) away_per_address: usize,
}

/// The turns that are taken, and the requests that wait for one.
pub(crate) struct Turns {
    limits: TurnLimits,
    state: Mutex<TurnsState>,
}

/// The client and the repository that a turn is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Party {
    pub(crate) address: Option<IpAddr>,
    pub(crate) repository: PathBuf,
}

impl Party {
    /// Returns the party of a client at `peer` and the repository at `path`.
    pub(crate) fn new(peer: Option<SocketAddr>, path: &Path) -> Party {
        Party { address: peer.map(network_of), repository: path.to_owned() }
    }
}

/// Returns the address by which `peer` is counted. For IPv6 it is the /64 network: one customer has all of
/// its addresses (RFC 6177).
pub(crate) fn network_of(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

#[derive(Default)]
struct TurnsState {
    running: usize,
    addresses: HashMap<IpAddr, usize>,
    repositories: HashMap<PathBuf, usize>,
    waiting: VecDeque<(Party, oneshot::Sender<Turn>)>,
    away: usize,
    away_addresses: HashMap<IpAddr, usize>,
}

/// A turn; it ends when this is dropped.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    party: Option<Party>,
}

/// A turn that its holder gives back while it waits for a client.
pub(crate) struct HeldTurn {
    turns: Arc<Turns>,
    party: Party,
    turn: Option<Turn>,
    is_away: bool,
}

/// The error that too many requests wait, or that the wait took too long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Busy;

impl Turns {
    pub(crate) fn new(limits: TurnLimits) -> Arc<Turns> {
        Arc::new(Turns { limits, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, TurnsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn for `party`.
    ///
    /// # Errors
    /// If too many requests wait already, or the wait takes too long.
    pub(crate) async fn take(self: &Arc<Self>, party: Party) -> Result<Turn, Busy> {
        let waiting = {
            let mut state = self.lock();
            if state.waiting.is_empty() && state.admits(&self.limits, &party) {
                state.begin(&party);
                return Ok(Turn { turns: self.clone(), party: Some(party) });
            }
            if state.waiting.len() >= self.limits.queue {
                state.waiting.retain(|(_, sender)| !sender.is_closed());
            }
            let of_address =
                |address| state.waiting.iter().filter(|(party, _)| party.address == Some(address)).count();
            if state.waiting.len() >= self.limits.queue
                || party.address.is_some_and(|a| of_address(a) >= self.limits.queue_per_address)
            {
                return Err(Busy);
            }
            let (sender, receiver) = oneshot::channel();
            state.waiting.push_back((party, sender));
            receiver
        };
        // A request in front may wait only because its own address is at its limit.
        self.pass_on();
        match tokio::time::timeout(self.limits.wait, waiting).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(Busy),
        }
    }

    /// Gives turns to the requests in the queue that may have one.
    fn pass_on(self: &Arc<Self>) {
        let mut given = Vec::new();
        {
            let mut guard = self.lock();
            let state = &mut *guard;
            let mut at = 0;
            while at < state.waiting.len() && state.running < self.limits.all {
                if state.waiting[at].1.is_closed() {
                    state.waiting.remove(at);
                } else if state.admits(&self.limits, &state.waiting[at].0)
                    && let Some((party, sender)) = state.waiting.remove(at)
                {
                    state.begin(&party);
                    given.push((sender, party));
                } else {
                    at += 1;
                }
            }
        }
        for (sender, party) in given {
            // If the receiver is gone, the turn is dropped, which passes it on.
            let _ = sender.send(Turn { turns: self.clone(), party: Some(party) });
        }
    }
}

impl TurnsState {
    fn admits(&self, limits: &TurnLimits, party: &Party) -> bool {
        let of_address = party.address.and_then(|a| self.addresses.get(&a)).copied().unwrap_or(0);
        let of_repository = self.repositories.get(&party.repository).copied().unwrap_or(0);
        self.running < limits.all && of_address < limits.per_address && of_repository < limits.per_repository
    }

    /// Counts one more request that waits for its client; returns false if there are too many.
    fn leave(&mut self, limits: &TurnLimits, party: &Party) -> bool {
        let of_address = party.address.and_then(|a| self.away_addresses.get(&a)).copied().unwrap_or(0);
        if self.away >= limits.away || of_address >= limits.away_per_address {
            return false;
        }
        self.away += 1;
        debug_assert!(self.away <= limits.away, "{} turns are away of {}", self.away, limits.away);
        if let Some(address) = party.address {
            *self.away_addresses.entry(address).or_default() += 1;
        }
        true
    }

    fn begin(&mut self, party: &Party) {
        debug_assert!(self.repositories.values().sum::<usize>() == self.running, "turns are counted twice");
        self.running += 1;
        if let Some(address) = party.address {
            *self.addresses.entry(address).or_default() += 1;
        }
        *self.repositories.entry(party.repository.clone()).or_default() += 1;
    }

    fn come_back(&mut self, party: &Party) {
        debug_assert!(self.away > 0, "a turn comes back that was not away");
        self.away -= 1;
        if let Some(address) = party.address {
            less(&mut self.away_addresses, &address);
        }
    }

    fn end(&mut self, party: &Party) {
        debug_assert!(self.running > 0, "a turn ends that has not begun");
        self.running -= 1;
        if let Some(address) = party.address {
            less(&mut self.addresses, &address);
        }
        less(&mut self.repositories, &party.repository);
    }
}

impl HeldTurn {
    /// Holds `turn`.
    pub(crate) fn new(turns: Arc<Turns>, party: Party, turn: Turn) -> HeldTurn {
        HeldTurn { turns, party, turn: Some(turn), is_away: false }
    }

    /// Gives the turn back for a while.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if too many requests wait for their clients already: this one is to end.
    pub(crate) fn leave(&mut self) -> io::Result<()> {
        debug_assert!(!self.is_away, "it is away already");
        if !self.turns.lock().leave(&self.turns.limits, &self.party) {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "it reads too slowly, as do too many others",
            ));
        }
        self.is_away = true;
        self.turn = None;
        Ok(())
    }

    /// Takes a turn again, before all requests that wait for their first. Blocks.
    pub(crate) fn come_back(&mut self) {
        debug_assert!(self.is_away && self.turn.is_none(), "it has its turn");
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.turns.lock();
            self.is_away = false;
            state.come_back(&self.party);
            state.waiting.push_front((self.party.clone(), sender));
        }
        self.turns.pass_on();
        self.turn = receiver.blocking_recv().ok();
    }
}

impl Drop for HeldTurn {
    fn drop(&mut self) {
        if self.is_away {
            self.turns.lock().come_back(&self.party);
        }
    }
}

/// Decrements the count of `key`, and removes it if it is zero.
pub(crate) fn less<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    debug_assert!(counts.contains_key(key), "less than none");
    if let Some(n) = counts.get_mut(key) {
        *n -= 1;
        if *n == 0 {
            counts.remove(key);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(party) = self.party.take() {
            self.turns.lock().end(&party);
            self.turns.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_counted_by_network() {
        let network = |text: &str| network_of(SocketAddr::new(text.parse().unwrap(), 1)).to_string();
        assert_eq!(network("10.1.2.3"), "10.1.2.3");
        assert_eq!(network("::ffff:10.1.2.3"), "10.1.2.3");
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }

    fn party(address: u8, repository: &str) -> Party {
        Party { address: Some([10, 0, 0, address].into()), repository: repository.into() }
    }

    fn limits(all: usize, queue: usize) -> TurnLimits {
        let wait = Duration::from_secs(60);
        TurnLimits {
            all,
            per_address: 2,
            per_repository: 2,
            queue,
            queue_per_address: queue,
            wait,
            away: 2,
            away_per_address: 1,
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_waits_for_a_client_holds_up_nobody() {
        let turns = Turns::new(limits(1, 10));
        let first = turns.take(party(1, "a")).await.unwrap();
        let mut held = HeldTurn::new(turns.clone(), party(1, "a"), first);
        held.leave().unwrap();
        let second = turns.take(party(1, "b")).await.unwrap();
        let mut other = HeldTurn::new(turns.clone(), party(1, "b"), second);
        assert!(other.leave().is_err(), "one of an address is away already");
        // The held turn comes back before requests that wait for their first turn.
        let third = tokio::spawn({
            let turns = turns.clone();
            async move { turns.take(party(3, "c")).await.map(|t| t.party.clone()) }
        });
        while turns.lock().waiting.is_empty() {
            tokio::task::yield_now().await;
        }
        let back = tokio::task::spawn_blocking(move || {
            held.come_back();
            held
        });
        while turns.lock().waiting.len() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(turns.lock().waiting[0].0, party(1, "a"));
        drop(other);
        drop(back.await.unwrap());
        assert_eq!(third.await.unwrap(), Ok(Some(party(3, "c"))));
        let state = turns.lock();
        assert!(state.running == 0 && state.away == 0 && state.away_addresses.is_empty());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn one_address_does_not_fill_the_queue() {
        let turns = Turns::new(TurnLimits { queue_per_address: 1, ..limits(1, 10) });
        let _running = turns.take(party(1, "a")).await.unwrap();
        let _waiting = tokio::spawn({
            let turns = turns.clone();
            async move { turns.take(party(1, "b")).await.map(|t| t.party.clone()) }
        });
        tokio::task::yield_now().await;
        assert_eq!(turns.take(party(1, "c")).await.err(), Some(Busy));
        let other = tokio::time::timeout(Duration::from_millis(20), turns.take(party(2, "c"))).await;
        assert!(other.is_err(), "another waits for its turn");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn turns_are_fair_and_bounded() {
        let turns = Turns::new(limits(3, 2));
        let a1 = turns.take(party(1, "a")).await.unwrap();
        let a2 = turns.take(party(1, "b")).await.unwrap();
        let waits = |party: Party| {
            tokio::spawn({
                let turns = turns.clone();
                async move { turns.take(party).await.map(|t| t.party.clone()) }
            })
        };
        // The third request of an address waits; a request of another address passes it.
        let third = waits(party(1, "c"));
        tokio::task::yield_now().await;
        let b = turns.take(party(2, "a")).await.unwrap();
        let fourth = waits(party(3, "a"));
        tokio::task::yield_now().await;
        assert_eq!(turns.take(party(4, "d")).await.err(), Some(Busy), "the queue is full");
        drop(a1);
        assert!(third.await.unwrap().is_ok());
        assert!(fourth.await.unwrap().is_ok());
        drop(b);
        drop(a2);
        assert_eq!(turns.lock().running, 0);
        assert!(turns.lock().addresses.is_empty() && turns.lock().repositories.is_empty());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn nobody_waits_longer_than_is_allowed() {
        let turns = Turns::new(TurnLimits { wait: Duration::from_millis(20), ..limits(1, 2) });
        let _running = turns.take(party(1, "a")).await.unwrap();
        assert_eq!(turns.take(party(2, "b")).await.err(), Some(Busy));
    }
}
