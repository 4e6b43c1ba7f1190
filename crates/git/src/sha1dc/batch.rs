//! Hashes many messages at once, one per lane.

use std::collections::VecDeque;

use super::block::{BLOCK, INITIAL, LANES, LaneWords, Suspect, to_bytes, vectors_of};
use super::detect::Sha1Detect;
use super::dispatch::{attacks, compress_lanes};

/// Fewer messages are hashed one after the other: the lanes take as long for two messages as for sixteen.
const LANES_WORTH_IT: usize = 4;

/// Sixteen running hashes with collision detection. Messages wait until all lanes can be filled. For use only
/// where [`super::is_supported`] is true.
pub(crate) struct HashBatch<D> {
    /// Word-major: word i of all lanes.
    states: [LaneWords; 5],
    lanes: [Option<Lane<D>>; LANES],
    waiting: VecDeque<Lane<D>>,
    taken: u64,
    suspects: Vec<Suspect>,
    /// The number of the message that each suspect belongs to.
    suspected: Vec<u64>,
    /// Numbers of the messages in which an attack was found.
    attacked: Vec<u64>,
    /// Messages that are hashed, but have suspects that are not tested yet.
    held: Vec<(u64, Hashed<D>)>,
    ready: Vec<Hashed<D>>,
}

/// A message that was hashed.
pub(crate) struct Hashed<D> {
    pub(crate) data: D,
    pub(crate) hash: [u8; 20],
    pub(crate) has_collision: bool,
}

/// A message: what precedes its data, its data and the padding.
struct Lane<D> {
    number: u64,
    data: D,
    /// The first block, if it is whole, and the last one or two.
    edges: [[u8; BLOCK]; 3],
    tail_blocks: usize,
    /// Where the whole blocks of `data` start.
    middle_start: usize,
    middle_blocks: usize,
    part: MessagePart,
    /// Blocks of `part` that are done.
    done: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MessagePart {
    Head,
    Middle,
    Tail,
}

impl<D: AsRef<[u8]>> Lane<D> {
    fn new(number: u64, header: &[u8], item: D) -> Lane<D> {
        let data = item.as_ref();
        let total = header.len() + data.len();
        let mut edges = [[0; BLOCK]; 3];
        let middle_start = if total >= BLOCK { BLOCK - header.len() } else { 0 };
        let middle_blocks = if total >= BLOCK { (total - BLOCK) / BLOCK } else { 0 };
        let tail = edges[1..].as_flattened_mut();
        let mut end = 0;
        let mut rest = data;
        if total >= BLOCK {
            edges[0][..header.len()].copy_from_slice(header);
            edges[0][header.len()..].copy_from_slice(&data[..middle_start]);
            rest = &data[middle_start + middle_blocks * BLOCK..];
        } else {
            tail[..header.len()].copy_from_slice(header);
            end = header.len();
        }
        let tail = edges[1..].as_flattened_mut();
        tail[end..end + rest.len()].copy_from_slice(rest);
        end += rest.len();
        tail[end] = 0x80;
        let tail_blocks = (end + 8) / BLOCK + 1;
        tail[tail_blocks * BLOCK - 8..tail_blocks * BLOCK].copy_from_slice(&(total as u64 * 8).to_be_bytes());
        let part = if total >= BLOCK { MessagePart::Head } else { MessagePart::Tail };
        Lane { number, data: item, edges, tail_blocks, middle_start, middle_blocks, part, done: 0 }
    }

    /// Returns the blocks that are left of the current part; never empty.
    fn blocks(&self) -> &[[u8; BLOCK]] {
        let of_part: &[[u8; BLOCK]] = match self.part {
            MessagePart::Head => &self.edges[..1],
            MessagePart::Middle => {
                &self.data.as_ref()[self.middle_start..].as_chunks().0[..self.middle_blocks]
            }
            MessagePart::Tail => &self.edges[1..=self.tail_blocks],
        };
        &of_part[self.done..]
    }

    /// Moves on by `n` blocks; returns false at the end of the message.
    fn advance(&mut self, n: usize) -> bool {
        self.done += n;
        if !self.blocks().is_empty() {
            return true;
        }
        self.done = 0;
        self.part = match self.part {
            MessagePart::Head if self.middle_blocks > 0 => MessagePart::Middle,
            MessagePart::Head | MessagePart::Middle => MessagePart::Tail,
            MessagePart::Tail => return false,
        };
        true
    }
}

impl<D: AsRef<[u8]>> HashBatch<D> {
    pub(crate) fn new() -> HashBatch<D> {
        HashBatch {
            states: [[0; LANES]; 5],
            lanes: [const { None }; LANES],
            waiting: VecDeque::new(),
            taken: 0,
            suspects: Vec::with_capacity(LANES),
            suspected: Vec::with_capacity(LANES),
            attacked: Vec::new(),
            held: Vec::new(),
            ready: Vec::new(),
        }
    }

    /// Adds the message of `header`, at most 32 bytes, and `data`. Hashes as long as all lanes are in use.
    pub(crate) fn push(&mut self, header: &[u8], data: D) {
        self.waiting.push_back(Lane::new(self.taken, header, data));
        self.taken += 1;
        while self.fill() == LANES {
            self.run();
        }
    }

    /// Hashes all messages that are left.
    pub(crate) fn flush(&mut self) {
        while self.fill() >= LANES_WORTH_IT {
            self.run();
        }
        for n in 0..LANES {
            let Some(mut lane) = self.lanes[n].take() else { continue };
            let mut alone = Sha1Detect::from_state(std::array::from_fn(|i| self.states[i][n]));
            loop {
                let blocks = lane.blocks();
                alone.blocks(blocks);
                let taken = blocks.len();
                if !lane.advance(taken) {
                    break;
                }
            }
            alone.test_suspects();
            if alone.collision {
                self.attacked.push(lane.number);
            }
            self.complete(lane, to_bytes(&alone.state));
        }
        self.test_suspects();
    }

    /// Returns a message that is hashed, if there is one.
    pub(crate) fn pop(&mut self) -> Option<Hashed<D>> {
        self.ready.pop()
    }

    /// Puts waiting messages into free lanes; returns how many are in use.
    fn fill(&mut self) -> usize {
        let mut used = 0;
        for (n, lane) in self.lanes.iter_mut().enumerate() {
            if lane.is_none()
                && let Some(next) = self.waiting.pop_front()
            {
                for (words, initial) in self.states.iter_mut().zip(INITIAL) {
                    words[n] = initial;
                }
                *lane = Some(next);
            }
            used += usize::from(lane.is_some());
        }
        used
    }

    /// Hashes in all lanes, of which at least one is in use, until one comes to the end of a part.
    fn run(&mut self) {
        let first = self.lanes.iter().flatten().next().expect("a lane is used").blocks();
        // A lane that is not used repeats the blocks of another; its state is ignored.
        let parts: [&[[u8; BLOCK]]; LANES] =
            std::array::from_fn(|n| self.lanes[n].as_ref().map_or(first, Lane::blocks));
        let count = parts.iter().map(|p| p.len()).min().unwrap_or(0);
        for i in 0..count {
            let blocks = parts.map(|p| &p[i]);
            let before = self.states;
            let masks = compress_lanes(&mut self.states, &blocks);
            for (n, &mask) in masks.iter().enumerate() {
                if mask == 0 {
                    continue;
                }
                let Some(lane) = &self.lanes[n] else { continue };
                let (before, after) = (before.map(|words| words[n]), self.states.map(|words| words[n]));
                for vector in vectors_of(mask) {
                    self.suspects.push(Suspect { block: *blocks[n], vector, before, after });
                    self.suspected.push(lane.number);
                }
            }
            if self.suspects.len() >= LANES {
                self.attacked.extend(attacked(&self.suspects, &self.suspected));
                self.suspects.clear();
                self.suspected.clear();
            }
        }
        for n in 0..LANES {
            if let Some(lane) = &mut self.lanes[n]
                && !lane.advance(count)
                && let Some(lane) = self.lanes[n].take()
            {
                let state = std::array::from_fn(|i| self.states[i][n]);
                self.complete(lane, to_bytes(&state));
            }
        }
        self.release();
    }

    /// Takes a message that is hashed. It is ready if none of its blocks is still a suspect.
    fn complete(&mut self, lane: Lane<D>, hash: [u8; 20]) {
        let hashed = Hashed { data: lane.data, hash, has_collision: false };
        if self.suspected.contains(&lane.number) {
            self.held.push((lane.number, hashed));
        } else {
            self.make_ready(lane.number, hashed);
        }
    }

    fn test_suspects(&mut self) {
        self.attacked.extend(attacked(&self.suspects, &self.suspected));
        self.suspects.clear();
        self.suspected.clear();
        self.release();
    }

    /// Makes messages ready whose suspects have been tested.
    fn release(&mut self) {
        let mut at = 0;
        while let Some((number, _)) = self.held.get(at) {
            if self.suspected.contains(number) {
                at += 1;
            } else {
                let (number, hashed) = self.held.swap_remove(at);
                self.make_ready(number, hashed);
            }
        }
    }

    fn make_ready(&mut self, number: u64, hashed: Hashed<D>) {
        let has_collision = self.attacked.contains(&number);
        self.attacked.retain(|&a| a != number);
        self.ready.push(Hashed { has_collision, ..hashed });
    }
}

fn attacked<'s>(suspects: &'s [Suspect], numbers: &'s [u64]) -> impl Iterator<Item = u64> + 's {
    suspects.chunks(LANES).zip(numbers.chunks(LANES)).flat_map(|(chunk, numbers)| {
        let found = attacks(chunk);
        numbers.iter().enumerate().filter(move |(n, _)| found >> n & 1 == 1).map(|(_, &number)| number)
    })
}
