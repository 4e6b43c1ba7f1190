//! The work on as many blocks at a time as a vector has lanes, one block per lane: steps of the hash,
//! conditions, compression and recompression. It is written in terms of operations that `avx2.rs` and
//! `avx512.rs` each define.
//!
//! Sources: FIPS 180-4 section 6.1.2 for the hash; Gueron and Krasnov, "Simultaneous hashing of multiple
//! messages" (2012), for the lanes.

/// Computes sixteen more words of the message schedule. Written out, because a variable index would send the
/// words to memory.
macro_rules! schedule {
    ($last:ident, $group:ident: $($i:literal)*) => {$(
        let x = parity($last[($i + 13) % 16], $last[($i + 8) % 16], $last[($i + 2) % 16]);
        $last[$i] = rotate::<1, 31>(xor(x, $last[$i]));
        $group[$i] = $last[$i];
    )*};
}

/// Defines `suspects`, `compress` and `attacks` for a processor with these features. A macro, because the
/// features of a function are a literal, and functions without them are not inlined into functions with them.
///
/// It uses `Vector`, of `N` lanes, and `splat`, `load`, `store`, `add`, `sub`, `xor`, `parity`, `choose`,
/// `majority`, `rotate`, `blend`, `equal`, `transpose` and `keep_if_bit_is` of the place where it stands.
macro_rules! lanes {
    ($features:literal) => {
        use std::array::from_fn;

        /// Computes words 0 to 79 of `N` messages; lane n is block n.
        #[target_feature(enable = $features)]
        fn expand(w: &mut [Vector; 80], blocks: &[&[u8; BLOCK]; N]) {
            let (head, tail) = w.split_at_mut(16);
            transpose(head, blocks);
            // The last sixteen words stay in registers, as far as there are so many.
            let mut last: [Vector; 16] = from_fn(|i| head[i]);
            for group in tail.as_chunks_mut::<16>().0 {
                schedule!(last, group: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
            }
        }

        /// Returns the disturbance vectors that the conditions leave, one mask per lane.
        #[target_feature(enable = $features)]
        fn test(w: &[Vector; 80]) -> Vector {
            let mut mask = splat(!0);
            macro_rules! condition {
                ($i:literal,$p:literal,$j:literal,$q:literal,$want:literal,$d:literal) => {
                    // Bit p is moved to the place of q; most conditions are about the same bit of both words.
                    let first = if $p == $q {
                        w[$i]
                    } else {
                        rotate::<{ ($q - $p + 32) % 32 }, { ($p - $q + 32) % 32 }>(w[$i])
                    };
                    mask = keep_if_bit_is::<$want>(mask, xor(first, w[$j]), 1 << $q, !$d);
                };
            }
            conditions!(condition);
            mask
        }

        /// Returns the function of three words for steps `ROUND * 20 ..`, with its constant.
        #[target_feature(enable = $features)]
        #[inline]
        fn mix<const ROUND: usize>(b: Vector, c: Vector, d: Vector) -> Vector {
            match ROUND {
                0 => add(choose(b, c, d), splat(0x5a82_7999)),
                1 => add(parity(b, c, d), splat(0x6ed9_eba1)),
                2 => add(majority(b, c, d), splat(0x8f1b_bcdc)),
                _ => add(parity(b, c, d), splat(0xca62_c1d6)),
            }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn step<const ROUND: usize>([a, b, c, d, e]: [Vector; 5], word: Vector) -> [Vector; 5] {
            let mixed = add(mix::<ROUND>(b, c, d), add(e, word));
            [add(rotate::<5, 27>(a), mixed), a, rotate::<30, 2>(b), c, d]
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn step_back<const ROUND: usize>([new, a, b, c, d]: [Vector; 5], word: Vector) -> [Vector; 5] {
            let b = rotate::<2, 30>(b);
            let mixed = add(mix::<ROUND>(b, c, d), add(rotate::<5, 27>(a), word));
            [a, b, c, d, sub(new, mixed)]
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn steps<const ROUND: usize>(mut s: [Vector; 5], words: &[Vector]) -> [Vector; 5] {
            // Five at a time, so that the variables change places without being moved.
            let (fives, rest) = words.as_chunks::<5>();
            for five in fives {
                for &word in five {
                    s = step::<ROUND>(s, word);
                }
            }
            for &word in rest {
                s = step::<ROUND>(s, word);
            }
            s
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn steps_back<const ROUND: usize>(mut s: [Vector; 5], words: &[Vector]) -> [Vector; 5] {
            for &word in words.iter().rev() {
                s = step_back::<ROUND>(s, word);
            }
            s
        }

        /// Returns the disturbance vectors that the conditions leave, for each block.
        #[target_feature(enable = $features)]
        pub(super) fn suspects(blocks: &[&[u8; BLOCK]; LANES]) -> LaneWords {
            let mut masks = [0; LANES];
            for (blocks, masks) in blocks.as_chunks().0.iter().zip(masks.as_chunks_mut().0) {
                let mut w = [splat(0); 80];
                expand(&mut w, blocks);
                *masks = store(test(&w));
            }
            masks
        }

        /// Compresses one block into each of the states, word-major; returns what the conditions leave, as
        /// [`suspects`] does.
        #[target_feature(enable = $features)]
        pub(super) fn compress(state: &mut [LaneWords; 5], blocks: &[&[u8; BLOCK]; LANES]) -> LaneWords {
            let mut masks = [0; LANES];
            for (n, (blocks, masks)) in blocks.as_chunks().0.iter().zip(masks.as_chunks_mut().0).enumerate() {
                let mut w = [splat(0); 80];
                expand(&mut w, blocks);
                *masks = store(test(&w));
                let mut before = [splat(0); 5];
                for (before, words) in before.iter_mut().zip(&*state) {
                    *before = load(&words.as_chunks().0[n]);
                }
                let s = steps::<0>(before, &w[..20]);
                let s = steps::<1>(s, &w[20..40]);
                let s = steps::<2>(s, &w[40..60]);
                let s = steps::<3>(s, &w[60..]);
                for i in 0..5 {
                    state[i].as_chunks_mut().0[n] = store(add(before[i], s[i]));
                }
            }
            masks
        }

        /// Returns which of at most [`LANES`] suspects are attacks: a bit each.
        #[target_feature(enable = $features)]
        pub(super) fn attacks(suspects: &[Suspect]) -> u16 {
            debug_assert!(suspects.len() <= LANES);
            suspects.chunks(N).enumerate().fold(0, |found, (n, some)| found | attacks_among(some) << (n * N))
        }

        /// Returns which suspects are attacks. Another block, which differs from the suspect as its
        /// disturbance vector says, is compressed backwards and forwards from the step at which both have the
        /// same state. The two blocks are an attack if the other one leads from some chaining value to the
        /// same end.
        #[target_feature(enable = $features)]
        fn attacks_among(suspects: &[Suspect]) -> u16 {
            let suspect = |n: usize| &suspects[n.min(suspects.len() - 1)];
            let blocks: [&[u8; BLOCK]; N] = from_fn(|n| &suspect(n).block);
            let mut w = [splat(0); 80];
            expand(&mut w, &blocks);
            let after: [Vector; 5] = from_fn(|i| load(&from_fn(|n| suspect(n).after[i])));
            // The state after the last step, before the chaining value is added.
            let mut s: [Vector; 5] = from_fn(|i| sub(after[i], load(&from_fn(|n| suspect(n).before[i]))));
            let rows: [&[u32; 80]; N] = from_fn(|n| &differences()[suspect(n).vector as usize]);
            let other: [Vector; 80] = from_fn(|t| xor(w[t], load(&from_fn(|n| rows[n][t]))));
            let is_late = |n| if VECTORS[suspect(n).vector as usize].3 == 65 { !0 } else { 0 };
            let late = load(&from_fn(is_late));
            s = steps_back::<3>(s, &w[65..]);
            let at_65 = s;
            s = steps_back::<3>(s, &w[60..65]);
            s = steps_back::<2>(s, &w[58..60]);
            // Backwards: the lanes that start at 65 first come to 58, where the others join.
            let back = steps_back::<3>(at_65, &other[60..65]);
            let back = steps_back::<2>(back, &other[58..60]);
            let back: [Vector; 5] = from_fn(|i| blend(late, s[i], back[i]));
            let back = steps_back::<2>(back, &other[40..58]);
            let back = steps_back::<1>(back, &other[20..40]);
            let back = steps_back::<0>(back, &other[..20]);
            // Forwards: the lanes that start at 58 first come to 65.
            let end = steps::<2>(s, &other[58..60]);
            let end = steps::<3>(end, &other[60..65]);
            let end: [Vector; 5] = from_fn(|i| blend(late, end[i], at_65[i]));
            let end = steps::<3>(end, &other[65..]);
            let mut found = u16::MAX >> (u16::BITS as usize - suspects.len());
            for i in 0..5 {
                found &= equal(add(back[i], end[i]), after[i]);
            }
            found
        }
    };
}

pub(super) use {lanes, schedule};
