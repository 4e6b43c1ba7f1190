//! Passes tasks to workers, and messages back.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_catalog::{Base, Repository};
use weir_repo::Progress;

use crate::failure::Failure;
use crate::throttle::{Cause, Pause};
use crate::visited::Visited;
use weir_ground::{Epoch, Stop, Timestamp};

/// A repository to visit.
pub(crate) struct Task {
    pub(crate) repository: Repository,
    pub(crate) host: String,
    /// The end of its lease, in seconds since 1970.
    pub(crate) leased_until: Timestamp,
    /// The repository that its archive builds on, or will.
    pub(crate) base: Option<Base>,
}

/// Tasks in order, each of which can be found by its host: thousands that wait for a busy host keep none of
/// another host away from a worker.
#[derive(Default)]
struct WaitingTasks {
    /// By their place in the order.
    by_host: HashMap<String, BTreeMap<i64, Task>>,
    /// The first task of each host.
    heads: BTreeMap<i64, String>,
    count: usize,
    /// The places before the first task, and behind the last one. Those below 0 are of tasks that were put
    /// first.
    front: i64,
    back: i64,
    /// How many hinted tasks were taken in a row while others waited.
    hinted_in_row: u32,
}

/// The most hinted tasks that workers take in a row while others are due. Then one of the others is taken,
/// so that hints never keep them waiting for ever.
const HINTED_IN_ROW_MAX: u32 = 3;

impl WaitingTasks {
    fn insert(&mut self, place: i64, task: Task) {
        let of_host = self.by_host.entry(task.host.clone()).or_default();
        let head = of_host.first_key_value().map(|(place, _)| *place);
        if head.is_none_or(|head| place < head) {
            head.map(|head| self.heads.remove(&head));
            self.heads.insert(place, task.host.clone());
        }
        let before = of_host.insert(place, task);
        debug_assert!(before.is_none(), "place {place} is taken");
        self.count += 1;
    }

    fn push_back(&mut self, task: Task) {
        self.insert(self.back, task);
        self.back += 1;
    }

    fn push_front(&mut self, task: Task) {
        self.front -= 1;
        self.insert(self.front, task);
    }

    /// Removes and returns the first task whose host `has_room`; now and then, one that was not put first.
    /// Only hosts are looked at that have none, and the first that has.
    fn take_first(&mut self, has_room: impl Fn(&str) -> bool) -> Option<Task> {
        let (place, host) = self.heads.iter().find(|(_, host)| has_room(host))?;
        let is_hinted = *place < 0 && self.by_host[host][place].repository.priority == 0;
        let mut taken = (*place, host.clone());
        if !is_hinted {
            self.hinted_in_row = 0;
        } else if self.hinted_in_row < HINTED_IN_ROW_MAX {
            self.hinted_in_row += 1;
        } else {
            self.hinted_in_row = 0;
            taken = self.first_not_put_first(has_room).unwrap_or(taken);
        }
        self.remove(taken.0, &taken.1)
    }

    /// Returns the place and the host of a task that was not put first, and whose host `has_room`.
    fn first_not_put_first(&self, has_room: impl Fn(&str) -> bool) -> Option<(i64, String)> {
        let behind_hints =
            self.heads.range(..0).filter(|(_, host)| has_room(host)).filter_map(|(_, host)| {
                let (place, _) = self.by_host[host].range(0..).next()?;
                Some((*place, host))
            });
        let heads =
            self.heads.range(0..).find(|(_, host)| has_room(host)).map(|(place, host)| (*place, host));
        let first = behind_hints.chain(heads).min_by_key(|(place, _)| *place);
        first.map(|(place, host)| (place, host.clone()))
    }

    /// Moves the tasks of the repositories `ids` to the front, in this order; returns how many these are.
    fn put_first(&mut self, ids: &[i64]) -> usize {
        let order: HashMap<i64, usize> = ids.iter().zip(0..).map(|(id, n)| (*id, n)).collect();
        let mut found: Vec<(usize, i64, String)> = Vec::new();
        for (host, tasks) in &self.by_host {
            for (place, task) in tasks {
                found.extend(order.get(&task.repository.id).map(|n| (*n, *place, host.clone())));
            }
        }
        found.sort_unstable();
        let first = self.heads.keys().next().copied().unwrap_or_default();
        let are_first = found.iter().map(|(_, place, _)| *place).eq(first..first + found.len() as i64);
        if !are_first {
            for (_, place, host) in found.iter().rev() {
                if let Some(task) = self.remove(*place, host) {
                    self.push_front(task);
                }
            }
        }
        found.len()
    }

    fn remove(&mut self, place: i64, host: &str) -> Option<Task> {
        let of_host = self.by_host.get_mut(host)?;
        let task = of_host.remove(&place)?;
        self.count -= 1;
        debug_assert!((self.front..self.back).contains(&place), "place {place}");
        if self.heads.remove(&place).is_some()
            && let Some((next, _)) = of_host.first_key_value()
        {
            self.heads.insert(*next, host.to_owned());
        }
        if of_host.is_empty() {
            self.by_host.remove(host);
        }
        Some(task)
    }

    fn iter(&self) -> impl Iterator<Item = &Task> {
        self.by_host.values().flat_map(BTreeMap::values)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Task> {
        self.by_host.values_mut().flat_map(BTreeMap::values_mut)
    }
}

#[derive(Default)]
struct QueueState {
    tasks: WaitingTasks,
    /// The number of running visits for each host, and in all.
    running: HashMap<String, usize>,
    running_in_all: usize,
    /// The repositories that workers have taken, by id: the epochs and ends of their leases.
    in_hand: HashMap<i64, (Epoch, Timestamp)>,
    /// The number of workers that wait for a task.
    idle: usize,
    /// The run is looking for more tasks: no worker ends yet.
    is_asking: bool,
    /// The repositories that wait for their first clone, or are being cloned.
    unfinished: HashSet<i64>,
    /// The forks that wait for such a clone, by the id of their base.
    waiting: HashMap<i64, Vec<Task>>,
    /// Why the tasks are left as they are, if they are.
    left: Option<Cause>,
    /// The number of tasks that were given out and left.
    left_count: usize,
}

/// If more tasks than this wait for busy hosts, no more are leased.
const TASKS_MAX: usize = 10_000;

/// The tasks that wait for a worker.
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
    /// Set when visits can no longer be recorded.
    is_closed: AtomicBool,
}

impl Queue {
    pub(crate) fn new() -> Queue {
        Queue { state: Mutex::default(), changed: Condvar::new(), is_closed: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds tasks; a fork waits for its base if that has yet to be cloned.
    pub(crate) fn add(&self, tasks: Vec<Task>) {
        self.lock().is_asking = false;
        self.add_ahead(tasks);
    }

    /// Adds tasks that were not asked for with [`Queue::wants_more`].
    pub(crate) fn add_ahead(&self, tasks: Vec<Task>) {
        let mut state = self.lock();
        state.unfinished.extend(tasks.iter().filter(|t| t.repository.seq.is_none()).map(|t| t.repository.id));
        for task in tasks {
            let base = task.base.as_ref().map(|base| base.base);
            match base.filter(|base| task.repository.seq.is_none() && state.unfinished.contains(base)) {
                Some(base) => state.waiting.entry(base).or_default().push(task),
                None => state.tasks.push_back(task),
            }
        }
        self.changed.notify_all();
    }

    /// Returns whether there are tasks that no worker has taken.
    pub(crate) fn has_waiting(&self) -> bool {
        self.lock().tasks.count > 0
    }

    /// Moves the waiting tasks of the repositories `ids` to the front, in this order; returns how many these
    /// are.
    pub(crate) fn put_first(&self, ids: &[i64]) -> usize {
        self.lock().tasks.put_first(ids)
    }

    /// Returns whether some workers are idle while others work. If so, the caller must [`Queue::add`] the
    /// tasks it finds, even if there are none.
    pub(crate) fn wants_more(&self) -> bool {
        let mut state = self.lock();
        state.is_asking = state.idle > 0 && state.running_in_all > 0 && state.tasks.count < TASKS_MAX;
        state.is_asking
    }

    /// Returns the ids and epochs of all repositories that wait or that workers have taken.
    pub(crate) fn leases(&self) -> Vec<(i64, Epoch)> {
        let state = self.lock();
        let waiting = state.waiting.values().flatten();
        let in_hand = state.in_hand.iter().map(|(id, (epoch, _))| (*id, *epoch));
        state
            .tasks
            .iter()
            .chain(waiting)
            .map(|task| (task.repository.id, task.repository.epoch))
            .chain(in_hand)
            .collect()
    }

    /// Returns the end of the lease of repository `id`, which a worker has taken.
    pub(crate) fn leased_until(&self, id: i64) -> Timestamp {
        self.lock().in_hand.get(&id).map_or(Timestamp(0), |(_, until)| *until)
    }

    /// Records that a worker is done with repository `id`.
    pub(crate) fn put_down(&self, id: i64) {
        self.lock().in_hand.remove(&id);
    }

    /// Sets the end of all leases.
    pub(crate) fn renew(&self, leased_until: Timestamp) {
        let mut state = self.lock();
        let QueueState { tasks, waiting, in_hand, .. } = &mut *state;
        in_hand.values_mut().for_each(|(_, until)| *until = leased_until);
        tasks
            .iter_mut()
            .chain(waiting.values_mut().flatten())
            .for_each(|task| task.leased_until = leased_until);
    }

    /// Closes the queue: no more tasks are given out.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Puts `task` back and closes the queue: no more visits begin, because of `cause`.
    pub(crate) fn leave(&self, task: Task, cause: Cause) {
        let mut state = self.lock();
        state.in_hand.remove(&task.repository.id);
        state.tasks.push_front(task);
        state.left = Some(cause);
        drop(state);
        self.close();
    }

    /// Records that a worker has left the repository `id` as it was, and with it the forks that wait for it.
    pub(crate) fn leave_one(&self, id: i64, cause: Option<Cause>) {
        let forks = self.visited(id, true);
        let mut state = self.lock();
        state.in_hand.remove(&id);
        state.left_count += 1 + forks.len();
        state.left = cause.or(state.left);
    }

    /// Returns why tasks were left, if they were, and how many.
    pub(crate) fn left(&self) -> Option<(Cause, usize)> {
        let state = self.lock();
        let waiting = state.waiting.values().flatten().count();
        state.left.map(|cause| (cause, state.left_count + state.tasks.count + waiting))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Returns the next task whose host has room, or `None` when there is none left. `ended` is the host of
    /// the worker's previous visit. A worker that ends a visit takes the next task itself, for waking another
    /// worker would cost more than many visits do.
    pub(crate) fn next(&self, ended: Option<&str>, jobs_per_host: usize, stop: &Stop) -> Option<Task> {
        let mut state = self.lock();
        if let Some(host) = ended {
            debug_assert!(state.running.contains_key(host), "no visit to {host} runs");
            state.running_in_all -= 1;
            if let Some(n) = state.running.get_mut(host) {
                *n -= 1;
                if *n == 0 {
                    state.running.remove(host);
                }
            }
        }
        loop {
            if stop.is_stopped() || self.is_closed() {
                return None;
            }
            let QueueState { tasks, running, .. } = &mut *state;
            let has_room = |host: &str| running.get(host).copied().unwrap_or(0) < jobs_per_host;
            if let Some(task) = tasks.take_first(has_room) {
                match running.get_mut(&task.host) {
                    Some(n) => *n += 1,
                    None => drop(running.insert(task.host.clone(), 1)),
                }
                state.running_in_all += 1;
                debug_assert_eq!(state.running.values().sum::<usize>(), state.running_in_all);
                state.in_hand.insert(task.repository.id, (task.repository.epoch, task.leased_until));
                if ended.is_some_and(|ended| ended != task.host) {
                    // Another worker may wait for the room at the host that was left.
                    self.changed.notify_one();
                }
                return Some(task);
            }
            let goes_on = state.running_in_all > 0 || state.is_asking;
            let is_over = state.tasks.count == 0 && state.waiting.is_empty() && !goes_on;
            if is_over {
                self.changed.notify_all();
                return None;
            }
            state.idle += 1;
            state = self
                .changed
                .wait_timeout(state, Duration::from_millis(200))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            state.idle -= 1;
        }
    }

    /// Records that repository `id` has been visited. The tasks that wait for it come next. If they
    /// `must_wait` longer, they are returned instead, with the tasks that wait for them in turn.
    pub(crate) fn visited(&self, id: i64, must_wait: bool) -> Vec<Task> {
        let mut state = self.lock();
        state.unfinished.remove(&id);
        let Some(mut tasks) = state.waiting.remove(&id) else { return Vec::new() };
        if must_wait {
            let mut looked_at = 0;
            while let Some(id) = tasks.get(looked_at).map(|task| task.repository.id) {
                state.unfinished.remove(&id);
                tasks.extend(state.waiting.remove(&id).unwrap_or_default());
                looked_at += 1;
            }
            return tasks;
        }
        tasks.into_iter().for_each(|task| state.tasks.push_back(task));
        self.changed.notify_all();
        Vec::new()
    }
}

/// A visit that has ended.
pub(crate) struct Done {
    pub(crate) repository: Repository,
    pub(crate) base: Option<Base>,
    pub(crate) result: Result<Visited, Failure>,
    pub(crate) took: Duration,
}

pub(crate) enum Message {
    Started(Box<Repository>, Arc<Progress>),
    Done(Box<Done>),
    /// The repository was not visited and is postponed until this time.
    PutOff(Box<Repository>, Timestamp),
    Paused(Pause),
    /// The cause of the pause of all visits is gone.
    GoesOn,
}

/// Messages of the workers. The receiver polls: waking it for each visit would cost a good part of a visit.
pub(crate) struct Mailbox {
    state: Mutex<(Vec<Message>, usize)>,
    changed: Condvar,
}

/// How often the mailbox is polled.
const LOOK_EVERY: Duration = Duration::from_millis(40);

/// A worker's share in the mailbox; dropped however the worker ends.
pub(crate) struct MailboxShare<'m>(&'m Mailbox);

impl Drop for MailboxShare<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).1 -= 1;
        self.0.changed.notify_one();
    }
}

impl Mailbox {
    /// Creates a mailbox for `workers` workers, each of which takes a [`Mailbox::share`].
    pub(crate) fn new(workers: usize) -> Mailbox {
        Mailbox { state: Mutex::new((Vec::new(), workers)), changed: Condvar::new() }
    }

    pub(crate) fn share(&self) -> MailboxShare<'_> {
        MailboxShare(self)
    }

    pub(crate) fn put(&self, message: Message) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0.push(message);
    }

    /// Returns the messages, and whether more may come.
    pub(crate) fn take(&self) -> (Vec<Message>, bool) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |state: &mut (Vec<Message>, usize)| state.1 > 0;
        let mut state = self
            .changed
            .wait_timeout_while(state, LOOK_EVERY, is_open)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
        (std::mem::take(&mut state.0), state.1 > 0)
    }
}

#[cfg(test)]
mod tests {
    use weir_catalog::{Catalog, NewRepository};

    use super::*;

    /// Returns tasks of `names`, each of which builds on the previous one.
    fn chain(names: &[&str]) -> Vec<Task> {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(&dir.path().join("catalog.db")).unwrap();
        let entry = |name: &&str| NewRepository::new(name, &format!("git://h/{name}"));
        catalog.add(&names.iter().map(entry).collect::<Vec<_>>(), Timestamp(0)).unwrap();
        let list = catalog.list().unwrap();
        let task = |n: usize| Task {
            repository: list[n].clone(),
            host: "h".to_owned(),
            leased_until: Timestamp(100),
            base: n.checked_sub(1).map(|base| Base::of(list[n].id, &list[base])),
        };
        (0..list.len()).map(task).collect()
    }

    fn names(tasks: &[Task]) -> Vec<&str> {
        tasks.iter().map(|task| task.repository.name.as_str()).collect()
    }

    #[test]
    fn what_waits_is_given_back_with_all_that_waits_for_it_and_nobody_waits_for_ever() {
        let queue = Queue::new();
        queue.add(chain(&["a", "b", "c"]));
        let first = queue.next(None, 4, &Stop::default()).unwrap();
        assert_eq!(first.repository.name, "a");
        let given_back = queue.visited(first.repository.id, true);
        queue.put_down(first.repository.id);
        assert_eq!(names(&given_back), ["b", "c"]);
        assert!(queue.leases().is_empty());
        assert!(queue.next(Some("h"), 4, &Stop::default()).is_none(), "it is over");
    }

    #[test]
    fn what_waits_comes_once_its_base_is_there() {
        let queue = Queue::new();
        queue.add(chain(&["a", "b", "c"]));
        let mut ended = None;
        for expected in ["a", "b", "c"] {
            let task = queue.next(ended, 4, &Stop::default()).unwrap();
            assert_eq!(task.repository.name, expected);
            assert!(queue.visited(task.repository.id, false).is_empty());
            queue.put_down(task.repository.id);
            ended = Some("h");
        }
        assert!(queue.next(ended, 4, &Stop::default()).is_none());
    }

    #[test]
    fn hints_do_not_keep_the_others_waiting() {
        let names: Vec<String> = (0..12).map(|n| format!("r{n:02}")).collect();
        let tasks = chain(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let hinted: Vec<i64> = tasks[4..].iter().map(|task| task.repository.id).collect();
        let queue = Queue::new();
        queue.add(tasks.into_iter().map(|task| Task { base: None, ..task }).collect());
        assert_eq!(queue.put_first(&hinted), 8);
        let mut order = Vec::new();
        for n in 0..12 {
            let task = queue.next((n > 0).then_some("h"), 1, &Stop::default()).unwrap();
            queue.put_down(task.repository.id);
            order.push(task.repository.name);
        }
        let expected = "r04 r05 r06 r00 r07 r08 r09 r01 r10 r11 r02 r03";
        assert_eq!(order.join(" "), expected);
    }
}
